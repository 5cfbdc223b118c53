#include "remcaps/models/eff_backbone.h"

#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/batch_norm.h"
#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/init.h"
#include "remcaps/models/graph_nodes.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {

namespace {

using Norm = EffBackboneOptions::Norm;

}  // namespace

void bind(ConfigSection& section, EffBackboneOptions& options) {
  section.key("conv_channels", options.channels, {1, 65536});
  section.key("conv_kernels", options.kernels, {1, 255});
  section.key("conv_strides", options.strides, {1, 64});
  section.key("activation", options.activation, {"relu", "leaky-relu"});
  section.key("norm", options.norm, {"batch", "instance", "none"});
  section.key("norm_epsilon", options.norm_epsilon, {1e-12, 1.0});
  if (options.channels.empty()) section.reject("conv_channels", "[]", "at least one layer");
  if (options.kernels.size() != options.channels.size())
    section.reject("conv_kernels", fmt::format("a list of {}", options.kernels.size()),
                   fmt::format("{}, one per entry of conv_channels", options.channels.size()));
  if (options.strides.size() != options.channels.size())
    section.reject("conv_strides", fmt::format("a list of {}", options.strides.size()),
                   fmt::format("{}, one per entry of conv_channels", options.channels.size()));
}

EffBackboneCapsNet::EffBackboneCapsNet(const std::string& name, const ModelContext& context,
                                       const EffBackboneOptions& backbone)
    : StackedCapsNet(name, context),
      leaky_(backbone.activation == EffBackboneOptions::Activation::kLeakyRelu),
      norm_(backbone.norm),
      norm_epsilon_(backbone.norm_epsilon) {
  check(backbone.kernels.size() == backbone.channels.size() &&
            backbone.strides.size() == backbone.channels.size(),
        "{}: {} kernels and {} strides for {} convolutions; expected one each", name,
        backbone.kernels.size(), backbone.strides.size(), backbone.channels.size());
  std::string then = leaky_ ? "LeakyReLU" : "ReLU";
  if (backbone.norm == Norm::kBatch) then += " + batch norm";
  if (backbone.norm == Norm::kInstance) then += " + instance norm";
  for (size_t i = 0; i < backbone.channels.size(); ++i) {
    const int64_t inputs = plan().map().channels, kernel = backbone.kernels[i];
    Layer layer;
    layer.conv = add_conv(
        fmt::format("conv{}", i + 1),
        {.channels = backbone.channels[i], .kernel = kernel, .stride = backbone.strides[i]}, then,
        backbone.norm == Norm::kNone ? 1 : 2);
    he_normal_(layer.conv->weight, inputs * kernel * kernel);
    layer.conv->bias.detach().zero_();
    layer.norm = add_norm(fmt::format("norm{}", i + 1));
    layers_.push_back(std::move(layer));
  }
}

torch::nn::AnyModule EffBackboneCapsNet::add_norm(const std::string& layer) {
  if (norm_ == Norm::kNone) return {};
  const FeatureMap& map = plan().map();
  plan().add_parameters(2 * map.channels);
  if (norm_ == Norm::kBatch)
    return torch::nn::AnyModule(register_module(
        layer,
        torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(map.channels).eps(norm_epsilon_))));
  check(map.height * map.width > 1,
        "{}: {} normalises a {}x{} map of {} over its places; one place "
        "has no variance (norm: batch)",
        name(), layer, map.height, map.width, map.origin);
  auto norm = register_module(
      layer, torch::nn::InstanceNorm2d(
                 torch::nn::InstanceNorm2dOptions(map.channels).eps(norm_epsilon_).affine(true)));
  // Published: both scale and shift start uniform in ±0.05.
  norm->weight.detach().uniform_(-0.05, 0.05);
  norm->bias.detach().uniform_(-0.05, 0.05);
  return torch::nn::AnyModule(norm);
}

PrimaryCaps EffBackboneCapsNet::add_depthwise(int64_t kernel, int64_t stride, int64_t dim,
                                              const Squash& squash) {
  const FeatureMap map = plan().map();
  check(map.channels % dim == 0, "{}: the {} channels of {} cannot be read as capsules of {}",
        name(), map.channels, map.origin, dim);
  const torch::ExpandingArray<2> window =
      kernel == 0 ? torch::ExpandingArray<2>({map.height, map.width}) : kernel;
  primary_ = add_primary("primary", PrimaryCapsOptions(map.channels, map.channels / dim, window)
                                        .dim(dim)
                                        .stride(stride)
                                        .groups(map.channels)
                                        .squash(squash));
  // Keras' default for a depthwise convolution, which counts all channels as inputs of each.
  const int64_t places = window->at(0) * window->at(1);
  glorot_uniform_(primary_->conv->weight, places * map.channels, places);
  primary_->conv->bias.detach().zero_();
  return primary_;
}

std::string EffBackboneCapsNet::describe_children(NetworkGraph& graph) const {
  std::string map = kGraphInput;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::string layer = fmt::format("conv{}", i + 1), norm = fmt::format("norm{}", i + 1);
    map = add_convolution(graph, layer, *layers_[i].conv, map);
    map = add_relu(graph, layer + ".relu", map, leaky_ ? 0.3 : 0.0);
    if (norm_ == Norm::kBatch) map = add_batch_norm(graph, norm, norm_epsilon_, map);
    if (norm_ == Norm::kInstance)
      map = graph.add({"instance_norm",
                       norm,
                       {map},
                       {{"epsilon", norm_epsilon_}},
                       {},
                       {{"weight", norm + ".weight"}, {"bias", norm + ".bias"}}});
  }
  return add_primary_caps(graph, "primary", *primary_, map);
}

Tensor EffBackboneCapsNet::children(const Tensor& images, RoutingRecorder&) {
  Tensor map = images;
  for (auto& layer : layers_) {
    map = convolve(*layer.conv, map, context().kernels);
    map = leaky_ ? torch::leaky_relu(map, 0.3) : torch::relu(map);
    if (norm_ == Norm::kBatch)
      map = batch_norm(*layer.norm.ptr()->as<torch::nn::BatchNorm2d>(), map);
    else if (!layer.norm.is_empty())
      map = layer.norm.forward(map);
  }
  return primary_->forward(map);
}

}  // namespace remcaps
