// The matrices W_ij of a fully connected routing layer and the rule by which it routes.
#pragma once

#include <optional>
#include <vector>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/runtime/operation.h"

namespace remcaps::runtime {

constexpr int64_t kMaxIterations = 64;

/// One matrix per child and parent.
struct Matrices {
  kernels::RoutingShape shape;  ///< without a batch
  std::vector<float> weight, bias;
  std::optional<SparseTensor> left =
      std::nullopt;  ///< in place of the weight: what pruning has left

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
  /// W_ij <- factors[i, j] W_ij
  void scale(const std::vector<float>& factors) {
    const auto size = static_cast<size_t>(shape.parent_dim * shape.child_dim);
    for (size_t n = 0; n < weight.size(); ++n) weight[n] *= factors[n / size];
    if (!left) return;
    for (size_t n = 0; n < left->values.size(); ++n)
      left->values[n] *= factors[left->places[n] / size];
  }
  kernels::RoutingShape for_batch(int64_t batch) const {
    kernels::RoutingShape result = shape;
    result.batch = batch;
    return result;
  }
};

/// Reads the matrices of a node. Without their zeros if they are stored so and if at most the share
/// `sparse` is left.
Matrices read_matrices(const NodeReader& reader, int64_t children, int64_t dim, double sparse = 0);

void read_bias(const NodeReader& reader, Matrices& matrices);

kernels::RoutingRule read_rule(const NodeReader& reader, kernels::Agreement agreement);

/// The rule of a pass with these levels, or with none.
kernels::RoutingRule with_levels(kernels::RoutingRule rule, const kernels::CouplingLevels& levels,
                                 int64_t parents);

}  // namespace remcaps::runtime
