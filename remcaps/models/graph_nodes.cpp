#include "remcaps/models/graph_nodes.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

std::string add_convolution(NetworkGraph& graph, const std::string& layer,
                            const torch::nn::Conv2dImpl& convolution, const std::string& input) {
  const auto& options = convolution.options;
  const auto* padding = get_if<torch::ExpandingArray<2>>(&options.padding());
  check(padding != nullptr && options.dilation()->at(0) == 1 && options.dilation()->at(1) == 1,
        "{}: a convolution that the graph cannot describe", layer);
  GraphNode node{"convolution", layer, {input}};
  node.numbers = {{"stride_y", options.stride()->at(0)},
                  {"stride_x", options.stride()->at(1)},
                  {"padding_y", (*padding)->at(0)},
                  {"padding_x", (*padding)->at(1)},
                  {"groups", options.groups()}};
  node.tensors["weight"] = layer + ".weight";
  if (convolution.bias.defined()) node.tensors["bias"] = layer + ".bias";
  return graph.add(std::move(node));
}

std::string add_relu(NetworkGraph& graph, const std::string& name, const std::string& input,
                     double slope) {
  return graph.add({"relu", name, {input}, {{"slope", slope}}});
}

std::string add_batch_norm(NetworkGraph& graph, const std::string& layer, double epsilon,
                           const std::string& input) {
  return graph.add({"batch_norm",
                    layer,
                    {input},
                    {{"epsilon", epsilon}},
                    {},
                    {{"weight", layer + ".weight"},
                     {"bias", layer + ".bias"},
                     {"mean", layer + ".running_mean"},
                     {"variance", layer + ".running_var"}}});
}

std::string add_primary_caps(NetworkGraph& graph, const std::string& layer,
                             const PrimaryCapsImpl& capsules, const std::string& input,
                             int64_t padding) {
  const PrimaryCapsOptions& options = capsules.options;
  const std::string map = add_convolution(graph, layer + ".conv", *capsules.conv, input);
  graph.nodes.back().numbers["padding_y"] += static_cast<double>(padding);
  graph.nodes.back().numbers["padding_x"] += static_cast<double>(padding);
  GraphNode node{"capsules", layer, {map}};
  node.numbers = {
      {"types", options.types()}, {"dim", options.dim()}, {"epsilon", options.squash().epsilon}};
  node.words = {{"order", "type-first"}, {"form", form_name(options.squash())}};
  return graph.add(std::move(node));
}

std::string add_squash(NetworkGraph& graph, const std::string& name, int64_t types, int64_t dim,
                       double epsilon, const std::string& input) {
  GraphNode node{"squash", name, {input}};
  node.numbers = {{"types", types}, {"dim", dim}, {"epsilon", epsilon}};
  node.words = {{"form", "norm"}};
  return graph.add(std::move(node));
}

std::string add_conv2d_caps(NetworkGraph& graph, const std::string& layer,
                            const Conv2dCapsImpl& capsules, const std::string& input) {
  const Conv2dCapsOptions& options = capsules.options;
  const std::string map = add_convolution(graph, layer + ".conv", *capsules.conv, input);
  return add_squash(graph, layer, options.types(), options.dim(), options.squash().epsilon, map);
}

std::string add_conv3d_caps(NetworkGraph& graph, const std::string& layer,
                            const Conv3dCapsImpl& capsules, const std::string& input) {
  const Conv3dCapsOptions& options = capsules.options;
  const bool over_map = options.routing().squash_over == Conv3dRouting::SquashOver::kMap;
  GraphNode node{"conv3d_routing", layer, {input}};
  node.numbers = {{"dim", options.dim()},
                  {"iterations", options.routing().iterations},
                  {"epsilon", options.routing().squash_epsilon}};
  node.words = {{"squash_over", over_map ? "map" : "atoms"}};
  node.tensors["weight"] = layer + ".conv.weight";
  if (capsules.conv->bias.defined()) node.tensors["vote_bias"] = layer + ".conv.bias";
  if (capsules.bias.defined()) node.tensors["bias"] = layer + ".bias";
  return graph.add(std::move(node));
}

}  // namespace remcaps
