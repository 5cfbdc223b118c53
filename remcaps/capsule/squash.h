// Squashing: turns a pre-activation into a pose whose length is a probability.
#pragma once

#include <torch/types.h>

namespace remcaps {

using torch::Tensor;

/// The norm form of Sabour et al.: v = n²/(1 + n²) · s / sqrt(n² + epsilon), n² = sum of s² over
/// `dims`. The epsilon stands inside the root only, so v is smooth at s = 0 (value and gradient 0).
/// Published: 1e-6 in DR-CapsNet and gamma-CapsNet, 1e-8 in DeepCaps.
Tensor squash(const Tensor& preactivation, at::IntArrayRef dims = -1, double epsilon = 1e-6);

/// The exponential form of Efficient-CapsNet: v = (1 - exp(-n)) · s / n with n = sqrt(n² +
/// epsilon). Published as (1 - 1/(e^n + 1e-20)) · s/(n + 1e-20): in float32 that epsilon is lost,
/// so the gradient at s = 0 is 0/0 and a dead capsule turns the whole network into NaN. With the
/// epsilon inside the root the limit v = s is reached smoothly, and the two agree to n²'s rounding
/// elsewhere.
Tensor squash_exponential(const Tensor& preactivation, at::IntArrayRef dims = -1,
                          double epsilon = 1e-7);

/// sqrt(sum of x² over `dim` + epsilon): a length whose gradient exists at 0. With epsilon 0 it is
/// the plain L2 norm (autograd takes 0 as its gradient at 0).
Tensor safe_norm(const Tensor& poses, int64_t dim = -1, double epsilon = 0.0);

/// Which of the two forms a layer uses, and its epsilon.
struct Squash {
  enum class Form { kNorm, kExponential };
  Form form = Form::kNorm;
  double epsilon = 1e-6;

  Tensor operator()(const Tensor& preactivation, at::IntArrayRef dims) const;
};

}  // namespace remcaps
