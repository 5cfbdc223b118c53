#include "remcaps/runtime/graph.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "remcaps/base/error.h"
#include "remcaps/base/json.h"

namespace remcaps {
namespace {

using nlohmann::json;

constexpr int64_t kGraphVersion = 1;
constexpr size_t kMaxNodes = 4096;
constexpr int64_t kMaxSide = 1 << 16, kMaxResize = 4096;  // the latter as in a recipe

json node_json(const GraphNode& node) {
  json attributes = json::object();
  for (const auto& [key, value] : node.numbers) attributes[key] = value;
  for (const auto& [key, value] : node.words) attributes[key] = value;
  return {{"op", node.op},
          {"name", node.name},
          {"inputs", node.inputs},
          {"attributes", attributes},
          {"tensors", node.tensors}};
}

GraphNode parse_node(const json& value) {
  GraphNode node{value.at("op").get<std::string>(), value.at("name").get<std::string>(),
                 value.at("inputs").get<std::vector<std::string>>()};
  for (const auto& [key, attribute] : value.at("attributes").items()) {
    if (attribute.is_string())
      node.words[key] = attribute.get<std::string>();
    else
      node.numbers[key] = attribute.get<double>();
  }
  node.tensors = value.at("tensors").get<std::map<std::string, std::string>>();
  return node;
}

NetworkGraph parse_graph(const json& value) {
  NetworkGraph graph;
  graph.network = value.at("network").get<std::string>();
  const json& input = value.at("input");
  graph.channels = whole_number(input.at("channels"));
  graph.height = whole_number(input.at("height"));
  graph.width = whole_number(input.at("width"));
  graph.picture.resize = whole_number(input.at("resize"));
  graph.picture.antialias = input.value("antialias", true);  // missing in older files
  graph.picture.standardize = input.at("standardize").get<bool>();
  graph.picture.mean = input.at("mean").get<std::vector<double>>();
  graph.picture.std = input.at("std").get<std::vector<double>>();
  graph.classes = value.at("classes").get<std::vector<std::string>>();
  graph.levels = whole_numbers(value.at("levels"));
  graph.level_form = value.at("level_form").get<std::string>();
  for (const json& node : value.at("nodes")) graph.nodes.push_back(parse_node(node));
  return graph;
}

bool is_per_channel(const std::vector<double>& values, int64_t channels) {
  return values.size() == 1 || values.size() == static_cast<size_t>(channels);
}

void check_graph(const NetworkGraph& graph, const std::string& source) {
  const auto is_side = [](int64_t size) { return size >= 1 && size <= kMaxSide; };
  check(is_side(graph.channels) && is_side(graph.height) && is_side(graph.width),
        "{}: its graph takes images of {}x{}x{}", source, graph.channels, graph.height,
        graph.width);
  check(graph.picture.resize >= 0 && graph.picture.resize <= kMaxResize,
        "{}: its graph resizes pictures to {}; expected at most {}", source, graph.picture.resize,
        kMaxResize);
  check(is_per_channel(graph.picture.mean, graph.channels) &&
            is_per_channel(graph.picture.std, graph.channels) &&
            std::none_of(graph.picture.std.begin(), graph.picture.std.end(),
                         [](double value) { return value == 0; }),
        "{}: its graph normalises {} channels with {} means and {} deviations", source,
        graph.channels, graph.picture.mean.size(), graph.picture.std.size());
  check(graph.level_form == "uniform" || graph.level_form == "bins",
        "{}: levels of the form {}; expected uniform or bins", source, graph.level_form);
  check(
      !graph.nodes.empty() && graph.nodes.size() <= kMaxNodes && graph.nodes.back().op == "lengths",
      "{}: its graph has {} nodes and does not end in lengths", source, graph.nodes.size());
  std::set<std::string> known = {kGraphInput};
  for (const GraphNode& node : graph.nodes) {
    check(!node.inputs.empty(), "{}: {} of its graph reads nothing", source, node.name);
    for (const std::string& input : node.inputs)
      check(known.contains(input), "{}: {} of its graph reads {}, which is not there", source,
            node.name, input);
    check(known.insert(node.name).second, "{}: its graph has {} twice", source, node.name);
  }
}

}  // namespace

std::string NetworkGraph::add(GraphNode node) {
  nodes.push_back(std::move(node));
  return nodes.back().name;
}

std::string NetworkGraph::to_text() const {
  json list = json::array();
  for (const GraphNode& node : nodes) list.push_back(node_json(node));
  return json_text({{"version", kGraphVersion},
                    {"network", network},
                    {"input",
                     {{"channels", channels},
                      {"height", height},
                      {"width", width},
                      {"resize", picture.resize},
                      {"antialias", picture.antialias},
                      {"standardize", picture.standardize},
                      {"mean", picture.mean},
                      {"std", picture.std}}},
                    {"classes", classes},
                    {"levels", levels},
                    {"level_form", level_form},
                    {"nodes", list}});
}

NetworkGraph NetworkGraph::parse(const std::string& text, const std::string& source) {
  NetworkGraph graph;
  try {
    const json value = json::parse(text);
    const auto version = whole_number(value.at("version"));
    check(version == kGraphVersion, "{}: its graph has version {}; this program reads version {}",
          source, version, kGraphVersion);
    graph = parse_graph(value);
  } catch (const json::exception&) {
    fail("{}: the graph in its metadata is damaged", source);
  }
  check_graph(graph, source);
  return graph;
}

bool is_routing(const GraphNode& node) {
  return node.op.ends_with("_routing");
}

NetworkGraph fused(NetworkGraph graph) {
  std::map<std::string, int64_t> readers;
  for (const GraphNode& node : graph.nodes)
    for (const std::string& input : node.inputs) ++readers[input];
  std::vector<GraphNode> nodes;
  for (GraphNode& node : graph.nodes) {
    GraphNode* before = nodes.empty() ? nullptr : &nodes.back();
    const bool follows = before != nullptr && before->op == "convolution" &&
                         node.inputs == std::vector<std::string>{before->name} &&
                         readers[before->name] == 1 && !before->numbers.contains("relu");
    if (follows && node.op == "batch_norm" && !before->numbers.contains("norm_epsilon")) {
      before->numbers["norm_epsilon"] = node.numbers["epsilon"];
      for (const auto& [role, tensor] : node.tensors) before->tensors["norm_" + role] = tensor;
      before->name = node.name;
    } else if (follows && node.op == "relu" && node.numbers["slope"] == 0) {
      before->numbers["relu"] = 1;
      before->name = node.name;
    } else {
      nodes.push_back(std::move(node));
    }
  }
  graph.nodes = std::move(nodes);
  return graph;
}

}  // namespace remcaps
