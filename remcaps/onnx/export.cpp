#include "remcaps/onnx/export.h"

#include <fmt/ranges.h>
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/version.h"
#include "remcaps/onnx/operations.h"

namespace remcaps {
namespace {

using onnx_export::Builder;
using onnx_export::Source;
using runtime::ValueShape;

constexpr int64_t kOpset = 13;

void declare(onnx::ValueInfoProto& value, const std::string& name,
             const std::vector<int64_t>& shape) {
  value.set_name(name);
  auto& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t size : shape) type.mutable_shape()->add_dim()->set_dim_value(size);
}

// One operation after the other; the runtime's own checks give the shapes.
class Converter {
 public:
  Converter(const NetworkGraph& network, const runtime::Weights& weights,
            const std::vector<int64_t>& levels, onnx::GraphProto& graph)
      : network_(network), weights_(weights), levels_(levels), graph_(graph), builder_(graph) {}

  void convert() {
    const ValueShape input = ValueShape::map(network_.channels, network_.height, network_.width);
    values_[kGraphInput] = {kGraphInput, input};
    declare(*graph_.add_input(), kGraphInput, {input.channels, input.height, input.width});
    for (const GraphNode& node : network_.nodes) add(node);
    const auto& [poses, shape] = values_.at(network_.nodes.back().inputs[0]);
    give("lengths", values_.at(network_.nodes.back().name).first, {shape.count});
    give("poses", poses, {shape.count, shape.dim});
    for (const auto& [name, couplings, shape_of] : couplings_) give(name, couplings, shape_of);
  }

 private:
  struct Couplings {
    std::string name, value;
    std::vector<int64_t> shape;
  };

  void add(const GraphNode& node) {
    std::vector<ValueShape> shapes;
    std::vector<std::string> inputs;
    for (const std::string& input : node.inputs) {
      inputs.push_back(values_.at(input).first);
      shapes.push_back(values_.at(input).second);
    }
    const auto operation = runtime::make_operation(node, shapes, weights_, {});
    const runtime::NodeReader reader(node, shapes, weights_);
    Source source{reader, inputs, operation->shape};
    if (!operation->routing) {
      values_[node.name] = {add_layer(builder_, source), operation->shape};
      return;
    }
    source.routing = *operation->routing;
    const int64_t levels = levels_[couplings_.size()];
    const Quantizer quantizer =
        Quantizer::of_form(network_.level_form, std::max<int64_t>(2, levels));
    const auto routed = add_routing(builder_, source, levels > 0 ? &quantizer : nullptr);
    values_[node.name] = {routed.poses, operation->shape};
    couplings_.push_back(
        {"couplings_" + node.name,
         routed.couplings,
         {source.routing.positions, source.routing.children, source.routing.parents}});
  }

  void give(const std::string& name, const std::string& value, const std::vector<int64_t>& shape) {
    builder_.named(name, "Identity", {value});
    declare(*graph_.add_output(), name, shape);
  }

  const NetworkGraph& network_;
  const runtime::Weights& weights_;
  std::vector<int64_t> levels_;  // of each routing layer
  onnx::GraphProto& graph_;
  Builder builder_;
  std::map<std::string, std::pair<std::string, ValueShape>> values_;
  std::vector<Couplings> couplings_;
};

std::vector<int64_t> levels_of_layers(const NetworkGraph& network,
                                      const std::vector<int64_t>& wanted,
                                      const std::string& source) {
  const auto layers =
      static_cast<size_t>(std::count_if(network.nodes.begin(), network.nodes.end(), is_routing));
  check(layers == network.levels.size(), "{}: its graph has {} routing layers and levels for {}",
        source, layers, network.levels.size());
  if (wanted.empty()) return std::vector<int64_t>(layers, 0);
  for (const int64_t levels : wanted)
    check(levels == 0 || (levels >= 2 && levels <= 256), "{} levels; expected 0, or 2 to 256",
          levels);
  if (wanted.size() > 1) {
    check(wanted.size() == layers, "levels for {} routing layers; the network has {}",
          wanted.size(), layers);
    return wanted;
  }
  std::vector<int64_t> result = network.levels;
  for (int64_t& levels : result)
    if (levels > 0) levels = wanted[0];
  return result;
}

// What a program needs beside the graph: names of classes, and how a picture becomes the input.
void add_metadata(const NetworkGraph& network, const std::vector<int64_t>& levels,
                  onnx::ModelProto& model) {
  const auto set = [&model](const std::string& key, const std::string& value) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  };
  set("network", network.network);
  set("classes", json_text(nlohmann::json(network.classes)));
  set("levels", fmt::format("{}", fmt::join(levels, " ")));
  if (network.picture.resize > 0) set("resize", fmt::format("{}", network.picture.resize));
  set("standardize", network.picture.standardize ? "yes" : "no");
  set("mean", fmt::format("{}", fmt::join(network.picture.mean, " ")));
  set("std", fmt::format("{}", fmt::join(network.picture.std, " ")));
}

}  // namespace

void write_onnx(const SafetensorsBytes& network, const std::filesystem::path& out,
                const std::vector<int64_t>& levels) {
  const auto text = network.metadata().find(kGraphMetadata);
  check(text != network.metadata().end(), "{}: has no graph; this network cannot become ONNX",
        network.source());
  const NetworkGraph graph = NetworkGraph::parse(text->second, network.source());
  onnx::ModelProto model;
  model.set_ir_version(7);
  model.set_producer_name("remcaps");
  model.set_producer_version(kVersion);
  model.add_opset_import()->set_version(kOpset);
  model.mutable_graph()->set_name(graph.network);
  const runtime::Weights weights(network);
  const std::vector<int64_t> of_layers = levels_of_layers(graph, levels, network.source());
  Converter(graph, weights, of_layers, *model.mutable_graph()).convert();
  add_metadata(graph, of_layers, model);
  try {
    onnx::checker::check_model(model);
    onnx::shape_inference::InferShapes(model);
    onnx::checker::check_model(model);
  } catch (const std::exception& error) {
    fail("{}: libonnx refuses the network: {}", out.string(), error.what());
  }
  write_atomically(out, model.SerializeAsString());
}

}  // namespace remcaps
