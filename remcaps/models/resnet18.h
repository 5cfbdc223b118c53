// ResNet-18 without its pooling and classifier, under torchvision's parameter names.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <filesystem>
#include <vector>

#include "remcaps/models/network_plan.h"

namespace remcaps {

/// Two 3x3 convolutions and a skip connection. Parameters: conv1, bn1, conv2, bn2 and, if the shape
/// changes, downsample.0 and downsample.1.
class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(NetworkPlan& plan, const std::string& prefix, int64_t channels, int64_t stride,
                 bool trained, KernelPath kernels);
  Tensor forward(const Tensor& map);
  /// Adds its nodes to a graph; returns the result's name.
  std::string describe(NetworkGraph& graph, const std::string& prefix,
                       const std::string& input) const;

 private:
  KernelPath kernels_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  torch::nn::Conv2d downsample_conv_{nullptr};  // none if the shape stays the same
  torch::nn::BatchNorm2d downsample_bn_{nullptr};
};
TORCH_MODULE(BasicBlock);

/// [B, C, H, W] -> [B, 512, H/32, W/32] (rounded up). Parameters: conv1, bn1, layer1.0.conv1, ...
class ResNet18Impl : public torch::nn::Module {
 public:
  /// The layers are planned as `prefix`.conv1 and so on. `trained`: whether backward needs their
  /// outputs.
  ResNet18Impl(NetworkPlan& plan, const std::string& prefix, bool trained, KernelPath kernels);
  Tensor forward(const Tensor& images);

  /// Adds the nodes of forward() to a graph, for parameters that begin with `prefix`.
  std::string describe(NetworkGraph& graph, const std::string& prefix) const;

  /// Reads torchvision's state dictionary from a safetensors file, without the classifier (fc).
  /// Error if a tensor is missing or has another shape.
  void load(const std::filesystem::path& path);

 private:
  KernelPath kernels_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> layers_;
};
TORCH_MODULE(ResNet18);

}  // namespace remcaps
