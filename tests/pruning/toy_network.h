// A network with so few weights that every one of them can be reasoned about.
#pragma once

#include <torch/nn/modules/conv.h>

#include "remcaps/base/config.h"
#include "remcaps/models/model.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps::testing {

/// One 1x1 convolution with two filters, one capsule layer with W [2, 2, 1, 1], both with biases, a
/// batch-norm-like scale outside the prunable layers and a frozen tensor inside them.
class ToyNetwork : public CapsNet {
 public:
  explicit ToyNetwork(std::vector<float> conv = {0.1f, -0.2f},
                      std::vector<float> capsules = {0.3f, -0.4f, 0.5f, -0.6f})
      : CapsNet("toy", ImageShape{1, 1, 1}, 2) {
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 1)));
    class_ = register_module("class", std::make_shared<torch::nn::Module>());
    scale = register_parameter("scale", torch::ones({1}));
    weight =
        class_->register_parameter("weight", torch::tensor(capsules).view({2, 2, 1, 1}).clone());
    bias = class_->register_parameter("bias", torch::zeros({2, 1}));
    frozen = class_->register_parameter("frozen", torch::ones({3}), /*requires_grad=*/false);
    const torch::NoGradGuard no_grad;
    conv_->weight.copy_(torch::tensor(conv).view({2, 1, 1, 1}));
    conv_->bias.zero_();
  }

  using CapsNet::forward;
  Forward forward(const Tensor& images, const ForwardOptions&) override {  // [B, 1, 1, 1]
    const Tensor children = torch::conv2d(images, conv_->weight, conv_->bias).flatten(1);  // [B, I]
    Forward result;
    result.poses = torch::matmul(children, weight.view({2, 2})).unsqueeze(-1) + bias;
    result.activations = result.poses.abs().squeeze(-1) * scale;
    return result;
  }
  std::vector<RoutingLayer> routing_layers() const override { return {{"class", 2, 2, 1, false}}; }
  std::vector<LayerCost> costs() const override { return {}; }
  std::vector<std::string> prunable_layers() const override { return {"conv", "class"}; }

  Tensor& conv_weight() { return conv_->weight; }
  Tensor& conv_bias() { return conv_->bias; }

  Tensor weight, bias, scale, frozen;

 private:
  torch::nn::Conv2d conv_{nullptr};
  std::shared_ptr<torch::nn::Module> class_;
};

/// Values of a tensor, for comparisons that print well.
inline std::vector<float> values(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(torch::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

/// The strategy that a recipe's `pruning:` section names.
inline std::unique_ptr<Pruner> pruner(const std::string& yaml) {
  ConfigSection section(YAML::Load(yaml), "test", "pruning");
  return make_pruner(section);
}

}  // namespace remcaps::testing
