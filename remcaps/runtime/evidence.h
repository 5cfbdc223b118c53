// What capsules contribute to an answer without libtorch: the counterpart of capsule/backtrack.h.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::runtime {

/// What the capsules of a layer contribute to the evidence for one class of one image. With what
/// the biases on the way contribute, they add up to that evidence (docs/explain.md).
struct Evidence {
  std::vector<double> capsules;
  double bias = 0;
};

/// What is shared out: what each parent contributes, or all of the evidence for one of the parents,
/// if they are the classes.
struct ParentEvidence {
  std::vector<double> parents;
  std::optional<int64_t> of_class = std::nullopt;
};

/// A routed image, or a window of it.
struct RoutedCapsules {
  kernels::RoutingShape shape;
  const float* couplings = nullptr;  ///< what the votes are multiplied with, [I, J]
  const float* bias = nullptr;       ///< [J, D_out], or null
  /// Writes the votes û_ij for a parent, [I, D_out].
  std::function<void(int64_t parent, float* votes)> make_votes;
};

/// Shares out `from` among the children: adds to of_child, [I], and of_bias. Parent j of the
/// capsules is number first + j * step of `from`.
void share_out(const RoutedCapsules& routed, const ParentEvidence& from, int64_t first,
               int64_t step, double* of_child, double& of_bias);

/// û_ij = W_ij u_i for one parent, [I, D_out]. `longest`: a vote is not longer than its child.
void dense_votes(const kernels::RoutingShape& shape, const float* weight, const float* children,
                 int64_t parent, bool longest, float* votes);

}  // namespace remcaps::runtime
