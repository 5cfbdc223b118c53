#include "remcaps/explain/tree_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/explain/capsule_tiles.h"
#include "remcaps/explain/tree_drawing.h"
#include "remcaps/ops/quantize.h"
#include "tests/explain/traces.h"

namespace remcaps {
namespace {

using testing::connected;
using ::testing::ElementsAre;
using testing::floats;
using testing::forward_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_tree;

std::vector<std::string> edges_of(const ParseTree& tree) {
  std::vector<std::string> edges;
  for (const TreeEdge& edge : tree.edges)
    edges.push_back(fmt::format("{}:{}->{}", edge.layer, edge.from, edge.to));
  std::sort(edges.begin(), edges.end());
  return edges;
}

TEST(ParseTree, KeepsCouplingsAboveTheUniformOneOnThePathsToTheRoot) {
  const ParseTree tree = parse_tree(capsule_layers(small_tree(), 0), {1});
  EXPECT_THAT(tree.names, ElementsAre("primary", "hidden", "class"));
  EXPECT_DOUBLE_EQ(tree.thresholds[1], 1.0 / 3);
  EXPECT_DOUBLE_EQ(tree.thresholds[2], 1.0 / 2);
  // Hidden 1's in-couplings (0.1, 0.3) are both below 1/3: it has in-degree 0 and no edges.
  EXPECT_THAT(edges_of(tree), ElementsAre("0:0->0", "0:1->2", "1:0->1", "1:2->1"));
  EXPECT_EQ(tree.layers[1][0].in_degree, 1);
  EXPECT_EQ(tree.layers[1][1].in_degree, 0);
  EXPECT_EQ(tree.layers[1][2].in_degree, 1);
  EXPECT_EQ(tree.layers[2][1].in_degree, 2);
  EXPECT_EQ(tree.nodes_in_tree(), 1 + 2 + 2);
  EXPECT_FALSE(tree.layers[2][0].in_tree) << "not the predicted class";
  EXPECT_NEAR(tree.layers[1][2].activation, 0.3, 1e-6);
}

TEST(ParseTree, TheThresholdIsAnOption) {
  // Above 0.25: hidden 1 gets in-degree 1 (0.3) and its 0.3 to class 1 counts.
  const ParseTree loose = parse_tree(capsule_layers(small_tree(), 0), {1}, {.threshold = 0.25});
  EXPECT_THAT(edges_of(loose),
              ElementsAre("0:0->0", "0:1->1", "0:1->2", "1:0->1", "1:1->1", "1:2->1"));
  const ParseTree strict = parse_tree(capsule_layers(small_tree(), 0), {1}, {.threshold = 0.85});
  EXPECT_THAT(edges_of(strict), ElementsAre());
  EXPECT_EQ(strict.nodes_in_tree(), 1) << "the root alone: hidden 0 has in-degree 0 (0.8)";
}

TEST(ParseTree, ACouplingEqualToTheThresholdDoesNotCount) {
  for (const int64_t classes : {2, 10}) {  // 0.1 is a float above 1/10
    const Tensor uniform = quantize(
        torch::full({1, 3, classes}, 1.0 / static_cast<double>(classes)), Quantizer::uniform(11));
    const Forward forward =
        forward_of(torch::rand({1, classes}), {connected("class", uniform, torch::ones({1, 3}))});
    EXPECT_TRUE(parse_tree(capsule_layers(forward, 0), {1}).edges.empty()) << classes;
  }
}

TEST(ParseTree, WeakEdgesAreShownOnRequestButLeadNoFurther) {
  const ParseTree tree =
      parse_tree(capsule_layers(small_tree(), 0), {1}, {.threshold = {}, .weak_edges = true});
  // Hidden 1 still has no in-degree; primary 0 -> hidden 2 (0.1) appears; 1 -> 0 is exactly zero.
  EXPECT_THAT(edges_of(tree), ElementsAre("0:0->0", "0:0->2", "0:1->2", "1:0->1", "1:2->1"));
}

TEST(ParseTree, EveryEdgeEndsInANodeOfTheTree) {
  torch::manual_seed(3);
  const auto random_layer = [](int64_t from, int64_t to) {
    return torch::rand({1, from, to}).mul(3).softmax(2);
  };
  const Forward forward = forward_of(torch::rand({1, 5}),
                                     {connected("a", random_layer(8, 9), torch::rand({1, 8})),
                                      connected("b", random_layer(9, 7), torch::rand({1, 9})),
                                      connected("class", random_layer(7, 5), torch::rand({1, 7}))});
  const ParseTree tree = parse_tree(capsule_layers(forward, 0), {2});
  ASSERT_FALSE(tree.edges.empty());
  for (const TreeEdge& edge : tree.edges) {
    const size_t layer = static_cast<size_t>(edge.layer);
    EXPECT_TRUE(tree.layers[layer + 1][static_cast<size_t>(edge.to)].in_tree);
    EXPECT_TRUE(tree.layers[layer][static_cast<size_t>(edge.from)].in_tree);
    EXPECT_GT(edge.coupling, tree.thresholds[layer + 1]);
    if (edge.layer > 0) {
      EXPECT_GE(tree.layers[layer][static_cast<size_t>(edge.from)].in_degree, 1);
    }
  }
}

TEST(ParseTree, OfContributionsHasThoseThatCarryHalfOfTheEvidence) {
  CapsuleLayers layers = capsule_layers(small_tree(), 0);
  EXPECT_THROW(parse_tree(layers, {1}, {.of = TreeOf::kContributions}), Error);
  Forward forward = small_tree();
  forward.routings[0].contribution = floats({3, 0, 1, 1, 2, -1}, {1, 2, 3});
  forward.routings[0].bias_contribution = floats({0, 0, 0.5}, {1, 3});
  forward.routings[1].contribution = floats({1, 1, 1, 5, 1, 3}, {1, 3, 2});
  forward.routings[1].bias_contribution = floats({0, 1}, {1, 2});
  layers = capsule_layers(forward, 0);
  const ParseTree tree = parse_tree(layers, {1}, {.of = TreeOf::kContributions});
  ASSERT_EQ(tree.edges.size(), 2u) << "5 of 9 into the class, 2 of 2 into that hidden capsule";
  EXPECT_EQ(tree.edges[0].from, 1);
  EXPECT_DOUBLE_EQ(tree.edges[0].share, 0.5);
  EXPECT_DOUBLE_EQ(tree.strength(tree.edges[0]), 0.5);
  EXPECT_NEAR(tree.edges[0].coupling, 0.3, 1e-6);
  EXPECT_EQ(tree.edges[1].layer, 0);
  EXPECT_EQ(tree.edges[1].from, 1);
  EXPECT_EQ(tree.layers[1][1].in_degree, 1);
  const ParseTree loose = parse_tree(layers, {1}, {.of = TreeOf::kContributions, .threshold = 0.2});
  EXPECT_EQ(loose.edges.size(), 4u) << "0.5 and 0.3 of the class, all that is positive below";
}

TEST(ParseTree, BeginsWhereTheFullyConnectedLayersDo) {
  Forward forward = small_tree();
  RoutingTrace conv = connected("conv", torch::ones({1, 2, 2, 1}), torch::ones({1, 3}));
  conv.windows = torch::zeros({2, 2}, torch::kLong);
  forward.routings.insert(forward.routings.begin(), conv);
  EXPECT_EQ(first_tree_layer(forward.routings), 1u);
  EXPECT_EQ(capsule_layers(forward, 0).names.front(), "conv");
  EXPECT_THROW(first_tree_layer({conv}), Error);
}

TEST(ParseTree, RefusesARootThatIsNoClass) {
  EXPECT_THROW(parse_tree(capsule_layers(small_tree(), 0), {2}), Error);
}

// Four images of a two-class network with three primary capsules.
Forward four_images() {
  const Tensor first = torch::rand({4, 3, 1});
  return forward_of(floats({0.9, 0.1, 0.2, 0.8, 0.7, 0.1, 0.3, 0.6}, {4, 2}),
                    {connected("class", torch::cat({first, 1 - first}, 2), torch::rand({4, 3}))});
}

TEST(TreeAverage, IsTheMeanOverTheImagesOfAPredictedClassAndOverAll) {
  torch::manual_seed(5);
  const Forward forward = four_images();
  const Tensor coupling = forward.routings[0].coupling.to(torch::kDouble);
  TreeAverage average;
  average.add(forward);
  EXPECT_EQ(average.images(), 4);
  EXPECT_THAT(average.images_per_class(), ElementsAre(2, 2));
  EXPECT_TRUE(torch::allclose(average.of_class(0).couplings[0], (coupling[0] + coupling[2]) / 2));
  EXPECT_TRUE(torch::allclose(average.of_class(1).couplings[0], (coupling[1] + coupling[3]) / 2));
  EXPECT_TRUE(torch::allclose(average.of_all().couplings[0], coupling.mean(0)));
  EXPECT_TRUE(torch::allclose(average.of_all().activations[1],
                              forward.activations.to(torch::kDouble).mean(0)));
  EXPECT_NEAR(average.of_class(0).activations[1][0].item<double>(), 0.8, 1e-6);
}

TEST(TreeAverage, DoesNotDependOnHowImagesAreBatched) {
  torch::manual_seed(6);
  const Forward forward = four_images();
  TreeAverage whole, parts;
  whole.add(forward);
  for (int64_t b = 0; b < 4; ++b) {
    const RoutingTrace& trace = forward.routings[0];
    parts.add(forward_of(forward.activations.slice(0, b, b + 1),
                         {connected("class", trace.coupling.slice(0, b, b + 1),
                                    trace.child_activations.slice(0, b, b + 1))}));
  }
  EXPECT_TRUE(torch::allclose(whole.of_class(1).couplings[0], parts.of_class(1).couplings[0]));
}

TEST(TreeAverage, HasNoMeanOfNoImages) {
  TreeAverage average;
  EXPECT_THROW(average.of_all(), Error);
  average.add(small_tree());
  EXPECT_THROW(average.of_class(0), Error);
  EXPECT_NO_THROW(average.of_class(1));
}

// How often `part` occurs.
size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TreeDrawing, ShowsEveryNodeAndEdgeWithItsNumbers) {
  const ParseTree tree = parse_tree(capsule_layers(small_tree(), 0), {1});
  const std::string svg =
      draw_tree(tree, {.title = "A <b> & c", .class_names = {"cat", "dog"}}).str("tree");
  EXPECT_THAT(svg, HasSubstr("A &lt;b&gt; &amp; c"));
  EXPECT_THAT(svg, HasSubstr("dog: activation 0.900, in-degree 2"));
  EXPECT_THAT(svg, HasSubstr("primary 0 \u2192 hidden 0: coupling 0.800"));
  EXPECT_THAT(svg, Not(HasSubstr("hidden 1 \u2192")));
  EXPECT_EQ(count_of("<circle", svg), 7u);
}

TEST(TreeDrawing, NamesOfTheClassesEndInsideTheDrawing) {
  const ParseTree tree = parse_tree(capsule_layers(small_tree(), 0), {1});
  for (const std::string last : {"dog", "a dog with a name of some length"}) {
    const TreeDrawing drawing{.class_names = {"cat", last}};
    const std::string svg = draw_tree(tree, drawing).str("tree");
    const size_t place = svg.rfind("<text x=\"", svg.find(">" + last + "</text>"));
    const double x = std::stod(svg.substr(place + 9));
    EXPECT_LT(x + 0.82 * text_width(last, 12), drawing.width) << last;
    EXPECT_GT(x, 150) << "the tree has room, too";
  }
}

TEST(TreeDrawing, ShowsALargeLayerAsOneTilePerCapsuleType) {
  // Eight types on a 4 x 4 grid; two capsules of type 3 and one of type 5 prefer class 1.
  Tensor coupling = torch::full({1, 128, 2}, 0.5);
  for (const int64_t capsule : {3 * 16 + 6, 3 * 16 + 7, 5 * 16}) {
    coupling[0][capsule][0] = 0.2;
    coupling[0][capsule][1] = 0.8;
  }
  const Forward forward = forward_of(
      floats({0.2, 0.9}, {1, 2}),
      {connected("class", coupling, torch::full({1, 128}, 0.25), {testing::dense_grid(8, 4, 4)})});
  const CapsuleLayers layers = capsule_layers(forward, 0);
  const std::string svg = draw_tree(parse_tree(layers, {1}), {}).str("tree");
  EXPECT_EQ(count_of("<title>type ", svg), 8u + 2 * 3u) << "tiles; cells and edges of the tree";
  EXPECT_EQ(count_of("coupling 0.800, activation 0.250", svg), 3u);
  EXPECT_EQ(count_of("<path", svg), 3u);
  EXPECT_THAT(svg, HasSubstr("type 3, row 1, column 2 \u2192 class 1: coupling 0.800"));
  const std::string weak =
      draw_tree(parse_tree(layers, {1}, {.threshold = {}, .weak_edges = true}), {}).str("tree");
  EXPECT_EQ(count_of("coupling 0.500, activation 0.250", weak), 125u);
  EXPECT_EQ(count_of("<path", weak), 8u) << "so many edges: one for each tile";
  EXPECT_THAT(weak, HasSubstr("type 0 \u2192 class 1: 16 of 16 capsules, their mean coupling 0.5"));
}

TEST(TreeDrawing, CapsulesWithoutAPlaceAreOneTile) {
  const int64_t many = kMostNodesPerLayer + 1;
  const Forward wide =
      forward_of(floats({0.2, 0.9}, {1, 2}),
                 {connected("class", torch::tensor({0.3f, 0.7f}).expand({1, many, 2}),
                            torch::ones({1, many}))});
  const std::string svg = draw_tree(parse_tree(capsule_layers(wide, 0), {1}), {}).str("tree");
  EXPECT_THAT(svg, HasSubstr(fmt::format("{0} of {0} capsules", many)));
  EXPECT_THAT(svg, HasSubstr(fmt::format("<title>capsule {}: coupling", many - 1)));
  EXPECT_THAT(svg, HasSubstr("the capsules in their order"));
}

TEST(TreeDrawing, EveryCapsuleOfALargeLayerHasACell) {
  // As a network gives them whose second map has a single place and therefore no grid.
  const CapsuleTiles some = lay_out_tiles(160, {testing::dense_grid(32, 2, 2)}, 0, 500, 0);
  EXPECT_FALSE(some.have_places);
  ASSERT_EQ(some.tiles.size(), 1u);
  EXPECT_EQ(some.tiles[0].capsules, 160);
  for (const CapsuleTiles::Cell& cell : some.cells) EXPECT_GT(cell.side, 0);
  const CapsuleTiles all = lay_out_tiles(
      160, {testing::dense_grid(32, 2, 2), testing::dense_grid(8, 2, 2, 128)}, 0, 500, 0);
  EXPECT_EQ(all.tiles.size(), 40u);
  EXPECT_EQ(all.cells[159].name, "map 1, type 7, row 1, column 1");
}

TEST(TreeDrawing, RefusesMoreClassesThanCanBeRead) {
  const int64_t many = kMostNodesPerLayer + 1;
  const Forward wide = forward_of(
      torch::rand({1, many}), {connected("class", torch::rand({1, 2, many}), torch::rand({1, 2}))});
  EXPECT_THROW(draw_tree(parse_tree(capsule_layers(wide, 0), {0}), {}), Error);
}

}  // namespace
}  // namespace remcaps
