// The uniform quantizer q_K of coupling coefficients (paper, section 3.2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace remcaps {

/// K levels with K + 1 edges. Published forms:
///   uniform(11)  edges linspace(-0.05, 1.05, 12), levels 0, 0.1, ..., 1
///   bins(128)    edges linspace(0, 1, 129), levels (k + 0.5) / 128 (Tiny ImageNet's "K = 129")
class Quantizer {
 public:
  /// Levels at 0, 1/(K-1), ..., 1. A coupling goes to the nearest level, a tie to the lower one.
  static Quantizer uniform(int64_t levels);
  /// K equal bins of [0, 1]; the levels are their centres.
  static Quantizer bins(int64_t levels);
  /// Of the form that a recipe names, "uniform" or "bins".
  static Quantizer of_form(const std::string& form, int64_t levels) {
    return form == "bins" ? bins(levels) : uniform(levels);
  }

  int64_t levels() const { return static_cast<int64_t>(centres_.size()); }
  const std::vector<double>& edges() const { return edges_; }
  const std::vector<float>& centres() const { return centres_; }

  /// The K - 1 edges between two levels for couplings in float32: each is the largest float that is
  /// not above the edge. A float lies at or below it exactly if it lies at or below the edge.
  const std::vector<float>& inner_edges() const { return inner_edges_; }

  /// The level 0..K-1 of a coupling: the smallest k with c <= edge[k + 1], as in the published
  /// forward pass. A coupling outside the edges goes to the first or the last level.
  int64_t level(float coupling) const {
    const auto edge = std::partition_point(inner_edges_.begin(), inner_edges_.end(),
                                           [&](float inner) { return !(coupling <= inner); });
    return edge - inner_edges_.begin();
  }

 private:
  explicit Quantizer(std::vector<double> edges);
  std::vector<double> edges_;
  std::vector<float> centres_, inner_edges_;
};

}  // namespace remcaps
