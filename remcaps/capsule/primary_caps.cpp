#include "remcaps/capsule/primary_caps.h"

#include "remcaps/ops/pointwise.h"

namespace remcaps {

PrimaryCapsImpl::PrimaryCapsImpl(PrimaryCapsOptions options_) : options(std::move(options_)) {
  conv = register_module("conv", Convolution(torch::nn::Conv2dOptions(
                                                 options.in_channels(),
                                                 options.types() * options.dim(), options.kernel())
                                                 .stride(options.stride())
                                                 .padding(options.padding())
                                                 .groups(options.groups())));
}

Tensor PrimaryCapsImpl::forward(const Tensor& map) {
  Tensor channels = convolve(*conv, map, options.kernels());  // [B, types·D, h, w]
  if (options.kernels() == KernelPath::kFused && options.squash().form == Squash::Form::kNorm &&
      has_fused_squash(channels))
    return fused_primary_squash(channels, options.types(), options.dim(), options.squash().epsilon);
  // The plain path is for float32 only; a convolution on a GPU may return bfloat16.
  if (channels.is_cuda()) channels = channels.to(torch::kFloat32);
  const int64_t height = channels.size(2), width = channels.size(3);
  const Tensor capsules =
      channels.reshape({channels.size(0), options.types(), options.dim(), height * width});
  return options.squash()(capsules, {2})
      .transpose(2, 3)  // [B, types, h·w, D]
      .reshape({channels.size(0), options.types() * height * width, options.dim()});
}

CapsuleGrid PrimaryCapsImpl::grid(int64_t height, int64_t width) const {
  return row_major_grid(options.types(), height, width);
}

}  // namespace remcaps
