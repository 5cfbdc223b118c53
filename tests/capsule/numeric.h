// Finite differences, and tensors to try them on.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

namespace remcaps::testing {

using torch::Tensor;

/// Random float64 numbers.
inline Tensor random_doubles(std::vector<int64_t> shape, double scale = 1.0) {
  return torch::randn(shape, torch::kFloat64) * scale;
}

/// dL/dx by central differences, for a float64 x that `loss` reads (x is changed and put back).
inline Tensor finite_differences(const std::function<Tensor()>& loss, const Tensor& x,
                                 double step = 1e-5) {
  const torch::NoGradGuard no_grad;
  Tensor gradient = torch::empty_like(x);
  Tensor flat = x.detach().view({-1}), out = gradient.view({-1});
  for (int64_t e = 0; e < flat.numel(); ++e) {
    const double value = flat[e].item<double>();
    flat[e] = value + step;
    const double above = loss().item<double>();
    flat[e] = value - step;
    const double below = loss().item<double>();
    flat[e] = value;
    out[e] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline void expect_close(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE(largest_difference(a.detach(), b.detach()), tolerance);
}

}  // namespace remcaps::testing
