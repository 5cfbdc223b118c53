// What the kernel tests share: the devices there are, and how close is close.
#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <string>
#include <vector>

namespace remcaps {

inline std::vector<std::string> kernel_devices() {
  std::vector<std::string> devices = {"cpu"};
#ifdef REMCAPS_CUDA
  if (torch::cuda::is_available()) devices.emplace_back("cuda");
#endif
  return devices;
}

/// Largest difference relative to the largest reference value (a float64 tensor).
inline ::testing::AssertionResult close_to(const torch::Tensor& found,
                                           const torch::Tensor& reference, double tolerance) {
  if (found.sizes() != reference.sizes())
    return ::testing::AssertionFailure()
           << "shape " << found.sizes() << ", expected " << reference.sizes();
  const torch::Tensor expected = reference.to(torch::kCPU, torch::kFloat64);
  const torch::Tensor difference = found.to(torch::kCPU, torch::kFloat64) - expected;
  const double largest = expected.abs().max().item<double>();
  const double error = difference.abs().max().item<double>();
  if (error <= tolerance * largest + 1e-9) return ::testing::AssertionSuccess();  // false for NaN
  return ::testing::AssertionFailure()
         << "off by " << error << " where the largest value is " << largest;
}

}  // namespace remcaps
