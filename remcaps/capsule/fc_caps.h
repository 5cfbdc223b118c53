// Fully connected capsules: every child votes for every parent.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "remcaps/capsule/packed_weight.h"
#include "remcaps/capsule/routing.h"
#include "remcaps/ops/routing.h"

namespace remcaps {

/// Options for FcCaps: every child capsule i votes for every parent capsule j.
struct FcCapsOptions {
  FcCapsOptions(int64_t children, int64_t parents) : children_(children), parents_(parents) {}
  TORCH_ARG(int64_t, children);         ///< I, capsules in layer l
  TORCH_ARG(int64_t, parents);          ///< J, capsules in layer l + 1
  TORCH_ARG(int64_t, child_dim) = 8;    ///< D of layer l
  TORCH_ARG(int64_t, parent_dim) = 16;  ///< D of layer l + 1
  /// Children that share one matrix per parent: neighbours in the order of children. 1: none do;
  /// h·w of a (type, y, x) layout: one matrix per type; I: one matrix for all.
  TORCH_ARG(int64_t, shared_over) = 1;
  TORCH_ARG(RoutingOptions, routing) = DynamicRouting{};
  TORCH_ARG(double, weight_std) = 0.1;  ///< W ~ N(0, weight_std²)
  TORCH_ARG(double, bias_mean) = 0.1;   ///< bias ~ N(bias_mean, bias_std²)
  TORCH_ARG(double, bias_std) = 0.0;
};

/// children [B, I, Din] -> parents [B, J, Dout] by the routing algorithm in the options.
/// Parameters: weight [I / shared_over, J, Dout, Din]; bias [J, Dout] where the algorithm has one;
/// prior [I, J], zeros at the start, for self-attention.
class FcCapsImpl : public torch::nn::Module {
 public:
  explicit FcCapsImpl(FcCapsOptions options);
  RoutingResult forward(const Tensor& children, const RoutingRequest& request = {});

  /// Of a weight that does not change any more, keeps a copy laid out for few images on the CPU,
  /// where dynamic routing is by the fused kernels. Training mode forgets it.
  void pack();
  void train(bool on = true) override;

  /// What pack() kept; null where it did not, or where the weight has changed.
  const PackedMatrices* packed() const { return packed_.of(weight); }

  const FcCapsOptions options;
  Tensor weight, bias, prior;

 private:
  PackedWeight<PackedMatrices> packed_;
};
TORCH_MODULE(FcCaps);

}  // namespace remcaps
