#include "remcaps/capsule/primary_caps.h"

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
  const Tensor channels = convolve(*conv, map, options.kernels());  // [B, types·D, h, w]
  return squash_to_capsules(channels, options.types(), options.dim(), options.squash(),
                            options.kernels());
}

CapsuleGrid PrimaryCapsImpl::grid(int64_t height, int64_t width) const {
  return row_major_grid(options.types(), height, width);
}

}  // namespace remcaps
