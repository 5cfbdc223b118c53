// Primary capsules: a convolution whose output channels are read as capsules.
#pragma once

#include <torch/expanding_array.h>

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/forward.h"
#include "remcaps/ops/kernel_path.h"
#include "remcaps/ops/squash.h"

namespace remcaps {

/// Options for PrimaryCaps: `types` capsules of `dim` numbers at each place of the map.
struct PrimaryCapsOptions {
  PrimaryCapsOptions(int64_t in_channels, int64_t types, torch::ExpandingArray<2> kernel)
      : in_channels_(in_channels), types_(types), kernel_(kernel) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, types);                    ///< O, capsule types
  TORCH_ARG(torch::ExpandingArray<2>, kernel);  ///< height and width
  TORCH_ARG(int64_t, dim) = 8;                  ///< numbers of a capsule
  TORCH_ARG(torch::ExpandingArray<2>, stride) = 1;
  TORCH_ARG(torch::ExpandingArray<2>, padding) = 0;
  TORCH_ARG(int64_t, groups) = 1;  ///< in_channels: depthwise (Efficient-CapsNet)
  TORCH_ARG(Squash, squash) = {};
  TORCH_ARG(KernelPath, kernels) = KernelPath::kFused;
};

/// [B, C, H, W] -> children [B, I, D], I = types x height x width, in order (type, y, x).
/// Parameters, with channel = type · D + component:
///   conv.weight  [types·D, C/groups, k, k]
///   conv.bias    [types·D]
class PrimaryCapsImpl : public torch::nn::Module {
 public:
  explicit PrimaryCapsImpl(PrimaryCapsOptions options);
  Tensor forward(const Tensor& map);

  /// The grid of its capsules, for an output map of this size.
  CapsuleGrid grid(int64_t height, int64_t width) const;

  const PrimaryCapsOptions options;
  Convolution conv{nullptr};
};
TORCH_MODULE(PrimaryCaps);

}  // namespace remcaps
