// A network and a data set small enough to train in a test, found by name like any other.
#pragma once

#include <torch/nn/modules/linear.h>

#include "remcaps/base/config.h"
#include "remcaps/data/dataset.h"
#include "remcaps/models/model.h"
#include "remcaps/ops/squash.h"
#include "remcaps/recipe/recipe.h"

namespace remcaps::testing {

/// One linear layer, a batch-norm-like running mean, and class capsules of 4: a stand-in with a
/// parameter, a bias and a buffer.
class TinyNetwork : public CapsNet {
 public:
  explicit TinyNetwork(const ModelContext& context)
      : CapsNet("tiny", context.input, context.classes) {
    const ImageShape in = context.input;
    layer_ = register_module(
        "class", torch::nn::Linear(in.channels * in.height * in.width, context.classes * kDim));
    mean_ = register_buffer("running_mean", torch::zeros({1}));
  }

  using CapsNet::forward;
  Forward forward(const Tensor& images, const ForwardOptions&) override {
    if (is_training()) {
      torch::NoGradGuard no_grad;
      mean_.mul_(0.9).add_(images.mean() * 0.1);
    }
    Forward forward;
    forward.poses = squash(layer_->forward(images.flatten(1)).view({-1, classes(), kDim}), -1);
    forward.activations = (forward.poses.square().sum(-1) + 1e-9).sqrt();
    return forward;
  }

  std::vector<RoutingLayer> routing_layers() const override { return {}; }
  std::vector<LayerCost> costs() const override {
    return {{"class",
             "Linear",
             {classes(), kDim},
             layer_->weight.numel(),
             layer_->weight.numel(),
             /*vote_floats=*/100,
             classes() * kDim}};
  }
  std::vector<std::string> prunable_layers() const override { return {"class"}; }

 private:
  static constexpr int64_t kDim = 4;
  torch::nn::Linear layer_{nullptr};
  Tensor mean_;
};

inline void register_tiny_network() {
  register_network("tiny", [](const ModelContext& context, ConfigSection& section) {
    bool unused = false;
    section.key("option", unused);
    return std::make_shared<TinyNetwork>(context);
  });
}

/// Images whose class is where they are bright, with noise: learnable, but not at once.
inline Dataset tiny_images(int64_t count, int64_t first) {
  const Tensor index = torch::arange(first, first + count);
  const Tensor labels = index % 3;
  const Tensor place = torch::arange(36).view({1, 36});
  const Tensor noise = (index.view({-1, 1}) * 7919 + place * 104729 + 13).remainder(97);
  const Tensor bright = (place.remainder(3) == labels.view({-1, 1})) * 60;
  Dataset data;
  data.images = (noise + bright).to(torch::kUInt8).view({count, 1, 6, 6});
  data.labels = labels;
  return data;
}

inline DataSplits tiny_data() {
  DataSplits data;
  data.name = "folder";
  data.class_names = {"a", "b", "c"};
  data.train = tiny_images(70, 0);
  data.validation = tiny_images(40, 1000);
  data.test = tiny_images(50, 2000);
  return data;
}

/// `more` is YAML that is merged over the tiny recipe.
inline Recipe tiny_recipe(const std::string& more = "") {
  register_tiny_network();
  const YAML::Node base = YAML::Load(
      "{dataset: {name: folder, augment: {shift: 1, mean: [0.3], std: [0.2]}}, model: {name: "
      "tiny}, "
      "train: {batch: 16, epochs: 3, lr: 0.01}}");
  return parse_recipe(more.empty() ? base : merge_yaml(base, YAML::Load(more)), "test/tiny");
}

}  // namespace remcaps::testing
