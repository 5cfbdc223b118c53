// Squashing: turns a pre-activation into a pose whose length is a probability. Plain tensor code,
// and fused kernels for the maps of convolutions.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "remcaps/ops/kernel_path.h"

namespace remcaps {

using torch::Tensor;

/// The norm form of Sabour et al.: v = n²/(1 + n²) · s / sqrt(n² + epsilon), n² = sum of s² over
/// `dims`. The epsilon is only inside the root, so v is smooth at s = 0 (value and gradient 0).
/// Published: 1e-6 in DR-CapsNet and gamma-CapsNet, 1e-8 in DeepCaps.
Tensor squash(const Tensor& preactivation, at::IntArrayRef dims = -1, double epsilon = 1e-6);

/// The exponential form of Efficient-CapsNet: v = (1 - exp(-n)) · s / n, n = sqrt(n² + epsilon).
/// Published as (1 - 1/(e^n + 1e-20)) · s/(n + 1e-20). In float32 that epsilon is lost: the
/// gradient at s = 0 is 0/0, and a dead capsule turns the whole network into NaN. With the epsilon
/// inside the root, v approaches s smoothly there; elsewhere the two differ only by the rounding of
/// n².
Tensor squash_exponential(const Tensor& preactivation, at::IntArrayRef dims = -1,
                          double epsilon = 1e-7);

/// sqrt(sum of x² over `dim` + epsilon): a length that has a gradient at 0. With epsilon 0 it is
/// the plain L2 norm (autograd takes 0 as its gradient at 0).
Tensor safe_norm(const Tensor& poses, int64_t dim = -1, double epsilon = 0.0);

/// Which of the two forms a layer uses, and its epsilon.
struct Squash {
  enum class Form { kNorm, kExponential };
  Form form = Form::kNorm;
  double epsilon = 1e-6;

  Tensor operator()(const Tensor& preactivation, at::IntArrayRef dims) const;
};

// Maps are the output of a convolution: [B, types * dim, h, w], channel = type * dim + component,
// NCHW or channels-last. There are fused kernels for the norm form of float32 maps, and on a GPU
// also of bfloat16 maps; they compute in float32. The gradient has the type of the map.

/// The capsules of a map, squashed: [B, types * h * w, dim] in the order (type, row, column). On a
/// GPU always float32.
Tensor squash_to_capsules(const Tensor& map, int64_t types, int64_t dim, const Squash& squash,
                          KernelPath kernels);

/// The map with each of its capsules squashed; the fused kernel keeps type and layout.
Tensor squash_channels(const Tensor& map, int64_t types, int64_t dim, const Squash& squash,
                       KernelPath kernels);

}  // namespace remcaps
