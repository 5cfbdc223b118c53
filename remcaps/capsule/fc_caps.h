// Fully connected capsules: every child votes for every parent.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "remcaps/capsule/routing/dynamic.h"

namespace remcaps {

template <typename Form>
class PackedWeight;

/// Options for FcCaps: every child capsule i votes for every parent capsule j.
struct FcCapsOptions {
  FcCapsOptions(int64_t children, int64_t parents) : children_(children), parents_(parents) {}
  TORCH_ARG(int64_t, children);         ///< I, capsules in layer l
  TORCH_ARG(int64_t, parents);          ///< J, capsules in layer l + 1
  TORCH_ARG(int64_t, child_dim) = 8;    ///< D of layer l
  TORCH_ARG(int64_t, parent_dim) = 16;  ///< D of layer l + 1
  /// How many children that follow each other share one matrix per parent. 1: none share. h·w in a
  /// (type, y, x) layout: one matrix per type. I: one matrix for all.
  TORCH_ARG(int64_t, shared_over) = 1;
  /// Any routing algorithm: `.routing(SelfAttentionRouting{})`, `.routing(routing_by_name("..."))`.
  TORCH_ARG(RoutingPtr, routing) = DynamicRouting{};
  TORCH_ARG(double, weight_std) = 0.1;  ///< W ~ N(0, weight_std²)
  TORCH_ARG(double, bias_mean) = 0.1;   ///< bias ~ N(bias_mean, bias_std²)
  TORCH_ARG(double, bias_std) = 0.0;

 public:
  /// What the routing algorithm sees of the layer.
  RoutedLayer layer() const {
    return {children_, parents_, child_dim_, parent_dim_, bias_mean_, bias_std_};
  }
};

/// children [B, I, Din] -> parents [B, J, Dout] by the routing algorithm in the options.
/// Parameters: weight [I / shared_over, J, Dout, Din], and the one that the algorithm has: bias
/// [J, Dout] for the iterated algorithms, prior [I, J] for self-attention.
class FcCapsImpl : public torch::nn::Module {
 public:
  explicit FcCapsImpl(FcCapsOptions options);
  RoutingResult forward(const Tensor& children, const RoutingRequest& request = {});

  /// Keeps a copy of a trained weight in the layout with which the CPU routes a few images fastest,
  /// if the routing algorithm can use one. Training mode drops the copy, unless the weight is
  /// frozen.
  void pack();
  void train(bool on = true) override;

  /// What pack() kept; null if it kept nothing or the weight has changed since.
  const PackedMatrices* packed() const;

  const FcCapsOptions options;
  Tensor weight;
  Tensor routing_parameter;  ///< the algorithm's bias or prior; undefined if it has none

 private:
  std::shared_ptr<const PackedWeight<PackedMatrices>> packed_;
};
TORCH_MODULE(FcCaps);

}  // namespace remcaps
