#include "remcaps/models/resnet18.h"

#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/batch_norm.h"
#include "remcaps/capsule/convolve.h"
#include "remcaps/models/graph_nodes.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {
namespace {

// A convolution without bias and the batch norm after it, both in one row of the plan.
std::pair<torch::nn::Conv2d, torch::nn::BatchNorm2d> conv_and_norm(NetworkPlan& plan,
                                                                   const std::string& layer,
                                                                   int64_t channels, int64_t kernel,
                                                                   int64_t stride, bool trained) {
  torch::nn::Conv2d conv(plan.conv(layer,
                                   {.channels = channels,
                                    .kernel = kernel,
                                    .stride = stride,
                                    .padding = kernel / 2,
                                    .bias = false},
                                   "batch norm", trained ? 2 : 0));
  plan.add_parameters(2 * channels);
  torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  return {conv, torch::nn::BatchNorm2d(channels)};
}

// The two as nodes.
std::string describe_conv_and_norm(NetworkGraph& graph, const std::string& conv_name,
                                   const torch::nn::Conv2d& conv, const std::string& norm_name,
                                   const torch::nn::BatchNorm2d& norm, const std::string& input) {
  const std::string map = add_convolution(graph, conv_name, *conv, input);
  return add_batch_norm(graph, norm_name, norm->options.eps(), map);
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(NetworkPlan& plan, const std::string& prefix, int64_t channels,
                               int64_t stride, bool trained, KernelPath kernels)
    : kernels_(kernels) {
  const FeatureMap input = plan.map();
  auto [conv1, bn1] = conv_and_norm(plan, prefix + ".conv1", channels, 3, stride, trained);
  conv1_ = register_module("conv1", conv1);
  bn1_ = register_module("bn1", bn1);
  auto [conv2, bn2] = conv_and_norm(plan, prefix + ".conv2", channels, 3, 1, trained);
  conv2_ = register_module("conv2", conv2);
  bn2_ = register_module("bn2", bn2);
  if (stride == 1 && input.channels == channels) return;
  const FeatureMap output = plan.map();
  plan.continue_from(input);
  auto [conv, bn] = conv_and_norm(plan, prefix + ".downsample", channels, 1, stride, trained);
  downsample_conv_ = conv;
  downsample_bn_ = bn;
  register_module("downsample", torch::nn::Sequential(conv, bn));
  plan.continue_from(output);
}

Tensor BasicBlockImpl::forward(const Tensor& map) {
  Tensor x = torch::relu(batch_norm(*bn1_, convolve(*conv1_, map, kernels_)));
  x = batch_norm(*bn2_, convolve(*conv2_, x, kernels_));
  if (downsample_conv_.is_empty()) return torch::relu(x + map);
  return torch::relu(x + batch_norm(*downsample_bn_, convolve(*downsample_conv_, map, kernels_)));
}

std::string BasicBlockImpl::describe(NetworkGraph& graph, const std::string& prefix,
                                     const std::string& input) const {
  std::string x =
      describe_conv_and_norm(graph, prefix + ".conv1", conv1_, prefix + ".bn1", bn1_, input);
  x = add_relu(graph, prefix + ".relu1", x);
  x = describe_conv_and_norm(graph, prefix + ".conv2", conv2_, prefix + ".bn2", bn2_, x);
  std::string skip = input;
  if (!downsample_conv_.is_empty())
    skip = describe_conv_and_norm(graph, prefix + ".downsample.0", downsample_conv_,
                                  prefix + ".downsample.1", downsample_bn_, input);
  return add_relu(graph, prefix, graph.add({"add", prefix + ".sum", {x, skip}}));
}

ResNet18Impl::ResNet18Impl(NetworkPlan& plan, const std::string& prefix, bool trained,
                           KernelPath kernels)
    : kernels_(kernels) {
  auto [conv1, bn1] = conv_and_norm(plan, prefix + ".conv1", 64, 7, 2, trained);
  conv1_ = register_module("conv1", conv1);
  bn1_ = register_module("bn1", bn1);
  plan.pool(prefix + ".maxpool", 3, 2, 1);
  for (int64_t stage = 1; stage <= 4; ++stage) {
    const std::string name = fmt::format("layer{}", stage);
    const std::string path = prefix + "." + name;
    const int64_t channels = 32 << stage, stride = stage == 1 ? 1 : 2;
    // Two statements, because the plan needs the first block before the second, and the order in
    // which arguments are evaluated is not defined.
    const BasicBlock first(plan, path + ".0", channels, stride, trained, kernels);
    const BasicBlock second(plan, path + ".1", channels, 1, trained, kernels);
    layers_.push_back(register_module(name, torch::nn::Sequential(first, second)));
  }
}

Tensor ResNet18Impl::forward(const Tensor& images) {
  Tensor x = torch::relu(batch_norm(*bn1_, convolve(*conv1_, images, kernels_)));
  x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  for (auto& layer : layers_) x = layer->forward(x);
  return x;
}

std::string ResNet18Impl::describe(NetworkGraph& graph, const std::string& prefix) const {
  std::string x =
      describe_conv_and_norm(graph, prefix + ".conv1", conv1_, prefix + ".bn1", bn1_, kGraphInput);
  x = add_relu(graph, prefix + ".relu1", x);
  GraphNode pool{"max_pool", prefix + ".maxpool", {x}};
  pool.numbers = {{"kernel", 3}, {"stride", 2}, {"padding", 1}};
  x = graph.add(std::move(pool));
  for (size_t stage = 0; stage < layers_.size(); ++stage)
    for (size_t block = 0; block < layers_[stage]->size(); ++block)
      x = layers_[stage]->at<BasicBlockImpl>(block).describe(
          graph, fmt::format("{}.layer{}.{}", prefix, stage + 1, block), x);
  return x;
}

void ResNet18Impl::load(const std::filesystem::path& path) {
  const TensorFile file(path);
  const torch::NoGradGuard no_grad;
  const auto read = [&](const std::string& name, Tensor tensor) {
    check(file.contains(name), "{}: has no tensor {}; expected torchvision's ResNet-18",
          path.string(), name);
    check(file.tensor(name).shape == tensor.sizes().vec(), "{}: {} is [{}]; expected [{}]",
          path.string(), name, fmt::join(file.tensor(name).shape, ", "),
          fmt::join(tensor.sizes(), ", "));
    tensor.copy_(file.load(name));
  };
  for (const auto& item : named_parameters()) read(item.key(), item.value());
  for (const auto& item : named_buffers())
    if (item.value().dim() > 0) read(item.key(), item.value());  // not num_batches_tracked
}

}  // namespace remcaps
