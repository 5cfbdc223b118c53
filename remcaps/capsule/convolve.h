// The convolutions in front of capsules.
#pragma once

#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/packed_weight.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/ops/kernel_path.h"
#include "remcaps/ops/sparse_convolution.h"

namespace remcaps {

using torch::Tensor;

/// A convolution that, once it is trained, can lay its weights out for the CPU's kernels.
class ConvolutionImpl : public torch::nn::Conv2dImpl {
 public:
  using Conv2dImpl::Conv2dImpl;

  /// Of weights that do not change any more, keeps a copy beside them in the form that is fastest:
  /// those that are not zero, where they are few enough for a sparse convolution to pay, or all as
  /// panels, where there is a kernel that reads those; both, where the one is faster for a single
  /// image and the other for many. Training mode forgets them.
  void pack();
  void train(bool on = true) override;

  /// What pack() kept; null where it did not, or where the weights have changed.
  const SparseWeights* sparse() const { return sparse_.of(weight); }
  const PackedFilters* filters() const { return filters_.of(weight); }

 private:
  PackedWeight<SparseWeights> sparse_;
  PackedWeight<PackedFilters> filters_;
};
TORCH_MODULE(Convolution);

/// What the layer's own forward() gives; on the CPU by a kernel of the project's own where there is
/// one for its shape (kernels/fast_convolution.h), unless the plain path is asked for. On a GPU
/// under bfloat16 autocast the result is bfloat16 and channels-last, as are the copies of map and
/// weight it is made of: cuDNN may have to transpose them itself, at every call, where they are
/// not. There a first layer, of a few channels, is one matrix product (kernels/pixel_layer.h), with
/// tf32 too. On the CPU a Convolution's packed weights are used where no gradient is asked for.
Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

/// relu(convolve(...)), in one piece where there is a kernel for it.
Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

}  // namespace remcaps
