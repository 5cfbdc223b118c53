// Comparisons of kernels with their plain twins on random inputs: what `remcaps check` prints and
// the tests run.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace remcaps {

/// The result of one comparison.
struct Finding {
  std::string path;   ///< operation and result: "routing: poses"
  std::string shape;  ///< of the inputs
  double error = 0;   ///< largest difference, relative to the largest value of the plain result
  double tolerance = 0;

  bool passed() const { return error <= tolerance; }  // false for NaN
};

/// The same values twice: leaves of the fused graph, and of the graph of its plain twin.
struct Leaves {
  std::vector<torch::Tensor> fused, plain;
};

/// Collects findings. Fused results are float32 on the device, plain ones float64 on the CPU.
class Checker {
 public:
  explicit Checker(torch::Device device) : device_(device) {}

  const torch::Device& device() const { return device_; }
  const std::vector<Finding>& findings() const { return findings_; }

  Leaves leaves(const std::vector<torch::Tensor>& values) const;

  void compare(const std::string& path, const std::string& shape, const torch::Tensor& fused,
               const torch::Tensor& plain, double tolerance);

  /// `named`: whose gradient ("weights'"), and the index of that leaf.
  void compare_gradients(const std::string& path, const std::string& shape, const Leaves& leaves,
                         const std::vector<std::pair<std::string, size_t>>& named,
                         double tolerance);

 private:
  torch::Device device_;
  std::vector<Finding> findings_;
};

/// An entry of the table.
struct KernelCheck {
  std::string name;  ///< of the operation
  /// The kernels it runs: files below remcaps/kernels without _cpu.cpp, _simd.cpp or _cuda.cu.
  std::vector<std::string> kernels;
  /// Adds findings; none on a device that does not have the kernel.
  std::function<void(Checker&)> run;
};

/// The convolutions, squashes, margin loss, update and batches. Every ConvolutionPath but the plain
/// one has an entry.
std::vector<KernelCheck> op_checks();

/// Runs the checks on a device; each draws its random inputs from the seed.
std::vector<Finding> run_checks(const std::vector<KernelCheck>& checks, torch::Device device,
                                uint64_t seed);

}  // namespace remcaps
