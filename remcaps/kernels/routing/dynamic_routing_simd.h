// The SIMD loops of dynamic routing. The votes u^_ij of one child (J x D_out x L floats, 10 KiB in
// DR-CapsNet) live in the first-level cache only.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/steps_simd.h"

namespace remcaps::kernels {

/// Floats of scratch memory a call on one group needs.
int64_t lane_scratch_floats(const RoutingShape& shape);

/// First iteration, whose couplings are all equal: sums[j] = sum_i u^_ij, [J, D_out, L].
void sum_votes(const ChildRange& range, float* sums);

/// A later iteration: c_ij = softmax_j(u^_ij . agreed_j), quantized where levels are given, and
/// sums[j] = sum_i c_ij u^_ij. `agreed` is the sum of the parents' poses of all iterations before:
/// the logits b_ij are linear in them, so they need no memory of their own.
void route_votes(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                 float* couplings, float* sums, float* scratch);

/// One iteration of the backward pass for one group.
struct BackwardStep {
  const float* grad_sums = nullptr;  ///< dL/ds_j of this iteration
  const float* couplings = nullptr;  ///< c_ij, [I, J, L]; null: all equal to `uniform`
  float uniform = 0;
  /// Full gradient: the sum of earlier poses, whose agreement with the votes made the couplings.
  const float* agreed = nullptr;
  float* grad_children = nullptr;  ///< [I, D_in, L] or null
  bool accumulate = false;         ///< add to grad_children
  float* grad_agreed = nullptr;    ///< sum_i dL/db_ij u^_ij, [J, D_out, L], or null
  float* grad_logits = nullptr;    ///< dL/db_ij, [end - begin, J, L]; needed with either of the two
};
void backward_votes(const ChildRange& range, const BackwardStep& step, float* scratch);

/// dL/dW_ij = sum over all images of (c_ij dL/ds_j + dL/db_ij agreed_j) u_i^T.
struct WeightGradientStep {
  GroupGradients from;
  const float* agreed = nullptr;       ///< null: the second term is left out; stride as grad_sums
  const float* grad_logits = nullptr;  ///< [end - begin, J, L]
  int64_t logits_stride = 0;
  float* grad_weight = nullptr;  ///< [I, J, D_out, D_in]
  bool accumulate = false;
};
void weight_gradient(const ChildRange& range, const WeightGradientStep& step, float* scratch);

}  // namespace remcaps::kernels
