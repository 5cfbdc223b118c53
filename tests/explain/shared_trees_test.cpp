// Parse trees, saliency maps and tile layouts against trees.json, which also tests the report's
// page (web/test/shared.test.ts): both must show the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/files.h"
#include "remcaps/explain/capsule_tiles.h"
#include "remcaps/explain/saliency.h"
#include "remcaps/explain/tree_drawing.h"

namespace remcaps {
namespace {

using nlohmann::json;

const json& shared_trees() {
  static const json file = json::parse(read_file(REMCAPS_SOURCE_TESTS "/explain/trees.json"));
  return file;
}

Tensor vector_of(const json& values) {
  return torch::tensor(values.get<std::vector<double>>(), torch::kDouble);
}

Tensor matrix_of(const json& rows) {
  std::vector<Tensor> all;
  for (const json& row : rows) all.push_back(vector_of(row));
  return torch::stack(all);
}

std::vector<CapsuleGrid> grids_from(const json& list) {
  std::vector<CapsuleGrid> grids;
  const auto axis = [](const json& of) {
    return ReceptiveField::Axis{of["first"], of["step"], of["size"]};
  };
  for (const json& grid : list) {
    grids.push_back({grid["offset"], grid["types"], grid["height"], grid["width"],
                     grid["stride_type"], grid["stride_y"], grid["stride_x"]});
    if (grid.contains("field"))
      grids.back().field = {axis(grid["field"]["y"]), axis(grid["field"]["x"])};
  }
  return grids;
}

TEST(SharedTrees, ParseTreesAreThoseOfTheFile) {
  for (const json& each : shared_trees()["cases"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    CapsuleLayers layers;
    for (const json& values : each["activations"]) {
      layers.names.push_back("layer");
      layers.activations.push_back(vector_of(values));
    }
    for (const json& couplings : each["couplings"])
      layers.couplings.push_back(matrix_of(couplings));
    for (const json& grids : each["grids"]) layers.grids.push_back(grids_from(grids));
    TreeOptions options;
    if (!each["threshold"].is_null()) options.threshold = each["threshold"].get<double>();
    const ParseTree tree = parse_tree(layers, {each["root"]}, options);
    std::vector<std::vector<int64_t>> edges;
    for (const TreeEdge& edge : tree.edges) edges.push_back({edge.layer, edge.from, edge.to});
    EXPECT_THAT(edges, ::testing::UnorderedElementsAreArray(
                           each["edges"].get<std::vector<std::vector<int64_t>>>()));
    for (size_t l = 0; l < tree.layers.size(); ++l) {
      std::vector<int64_t> in_tree, in_degree;
      for (size_t n = 0; n < tree.layers[l].size(); ++n) {
        if (tree.layers[l][n].in_tree) in_tree.push_back(static_cast<int64_t>(n));
        in_degree.push_back(tree.layers[l][n].in_degree);
      }
      EXPECT_EQ(in_tree, each["in_tree"][l].get<std::vector<int64_t>>()) << l;
      EXPECT_EQ(in_degree, each["in_degree"][l].get<std::vector<int64_t>>()) << l;
    }
  }
}

TEST(SharedTrees, SaliencyMapsAreThoseOfTheFile) {
  int maps = 0;
  for (const json& each : shared_trees()["cases"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    std::vector<RoutingTrace> routings;
    for (size_t l = 0; l < each["couplings"].size(); ++l) {
      RoutingTrace trace;
      trace.layer = "layer";
      trace.coupling = matrix_of(each["couplings"][l]).unsqueeze(0).to(torch::kFloat);
      trace.child_activations = vector_of(each["activations"][l]).unsqueeze(0).to(torch::kFloat);
      trace.grids = grids_from(each["grids"][l]);
      routings.push_back(trace);
    }
    EXPECT_EQ(std::any_of(routings.begin(), routings.end(), has_place),
              !each["saliency"].is_null());
    if (each["saliency"].is_null()) continue;
    const Tensor map = saliency(routings, saliency_layer(routings, "net"),
                                torch::tensor({each["root"].get<int64_t>()}),
                                {1, each["size"][0].get<int64_t>(), each["size"][1].get<int64_t>()})
                           .map;
    EXPECT_TRUE(map.flatten().to(torch::kDouble).allclose(vector_of(each["saliency"]), 0, 1e-6));
    ++maps;
  }
  EXPECT_GE(maps, 3);
}

TEST(SharedTrees, TilesAreThoseOfTheFile) {
  EXPECT_EQ(kMostNodesPerLayer, shared_trees()["most_nodes"]);
  for (const json& each : shared_trees()["layouts"]) {
    const int64_t children = each["children"];
    const std::vector<CapsuleGrid> grids = grids_from(each["grids"]);
    const CapsuleTiles laid = lay_out_tiles(children, grids, 0, 1000, 0);
    EXPECT_EQ(laid.have_places, each["have_places"]) << children;
    if (!laid.have_places) {
      EXPECT_EQ(laid.tiles.size(), 1u) << children;
      continue;
    }
    for (size_t g = 0; g < grids.size(); ++g)
      EXPECT_EQ(tiles_per_row(grids[g]), each["tiles_per_row"][g]) << children;
  }
  for (const json& each : shared_trees()["cell_sides"])
    EXPECT_DOUBLE_EQ(cell_side(each[0], each[1]), each[2].get<double>());
}

}  // namespace
}  // namespace remcaps
