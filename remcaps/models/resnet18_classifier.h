// A plain ResNet-18 classifier, which trains the backbone of resnet18-capsnet. It has no capsules.
#pragma once

#include <torch/nn/modules/linear.h>

#include "remcaps/models/resnet18.h"

namespace remcaps {

/// backbone -> mean over the places -> linear -> softmax. The activations are probabilities, for
/// the loss `cross-entropy`; the poses are the same numbers, as vectors of one.
/// Parameters:
///   backbone.*          as in Resnet18CapsNet, which can start from them (train.start_from)
///   fc.{weight,bias}
class Resnet18Classifier : public CapsNet {
 public:
  explicit Resnet18Classifier(const ModelContext& context);

  using CapsNet::forward;
  Forward forward(const Tensor& images, const ForwardOptions& options) override;
  std::vector<RoutingLayer> routing_layers() const override { return {}; }
  std::vector<LayerCost> costs() const override { return costs_; }
  std::vector<std::string> prunable_layers() const override { return prunable_; }
  bool images_are_independent() const override { return true; }
  bool gives_probabilities() const override { return true; }

 private:
  std::vector<LayerCost> costs_;
  std::vector<std::string> prunable_;
  ResNet18 backbone_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

}  // namespace remcaps
