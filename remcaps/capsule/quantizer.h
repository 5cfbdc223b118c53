// The uniform quantizer q_K of coupling coefficients (paper, section 3.2).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace remcaps {

/// K levels with K + 1 edges. Published forms:
///   uniform(11): edges linspace(-0.05, 1.05, 12), levels 0, 0.1, ..., 1
///   bins(128):   edges linspace(0, 1, 129), levels (k + 0.5) / 128 (Tiny ImageNet's "K = 129")
class Quantizer {
 public:
  /// Levels at 0, 1/(K-1), ..., 1: each coupling goes to the nearest, ties down.
  static Quantizer uniform(int64_t levels);
  /// K equal bins of [0, 1], levels at their centres.
  static Quantizer bins(int64_t levels);

  int64_t levels() const { return static_cast<int64_t>(centres_.size()); }
  const std::vector<double>& edges() const { return edges_; }
  const std::vector<float>& centres() const { return centres_; }

  /// Level index 0..K-1 of each coupling: the smallest k with c <= edge[k + 1] (right-closed, as
  /// the published forward has it). Couplings outside the edges go to the first or last level.
  torch::Tensor indices(const torch::Tensor& coupling) const;
  /// The level's value, float32, same shape.
  torch::Tensor quantize(const torch::Tensor& coupling) const;
  /// The left-closed index 0..K-1 the published dictionary uses on couplings (edge[k] <= c <
  /// edge[k + 1]); equal to indices() on values that are levels already.
  torch::Tensor dictionary_indices(const torch::Tensor& coupling) const;

 private:
  explicit Quantizer(std::vector<double> edges);
  std::vector<double> edges_;
  std::vector<float> centres_;
};

}  // namespace remcaps
