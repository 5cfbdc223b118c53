// The convolution layers of capsule networks.
#pragma once

#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/packed_weight.h"
#include "remcaps/ops/kernel_path.h"

namespace remcaps {

using torch::Tensor;

class PackedFilters;
class SparseWeights;

/// A convolution that can pack its weight once it is trained.
class ConvolutionImpl : public torch::nn::Conv2dImpl {
 public:
  using Conv2dImpl::Conv2dImpl;

  /// Copies the weight into the forms that are fastest on a CPU (choose_packing). The weight must
  /// not change any more; training mode drops the copies.
  void pack();
  void train(bool on = true) override;

  /// The packed forms; null if pack() did not make one, or if the weight has changed since.
  const SparseWeights* sparse() const { return sparse_.of(weight); }
  const PackedFilters* filters() const { return filters_.of(weight); }

 private:
  PackedWeight<SparseWeights> sparse_;
  PackedWeight<PackedFilters> filters_;
};
TORCH_MODULE(Convolution);

/// The layer's forward(), by the implementation that ops/convolution.h chooses.
Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

/// relu(convolve(...)), in one pass if the implementation can do that.
Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

}  // namespace remcaps
