// Self-attention routing (Efficient-CapsNet) on the CPU, without a gradient.
#pragma once

#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

struct AttentionRule {
  SquashForm form = SquashForm::kExponential;
  float epsilon = 0;
  bool self = false;         ///< a vote agrees with itself only, not with all votes for the parent
  bool exact_prior = false;  ///< the prior is added after the levels
  CouplingLevels levels;
};

/// c_ij = softmax_j(<u^_ij, sum_k u^_kj> / sqrt(D_out)) + prior_ij, v_j = squash(sum_i c_ij u^_ij).
/// With levels, couplings are clamped to [0, 1] and rounded. If `self`, the sum is u^_ij alone. If
/// `exact_prior`, the softmax is rounded instead, and `couplings` are without the prior.
///   prior      [I, J]
///   poses      [B, J, D_out]
///   couplings  [B, I, J], or null: not wanted
void self_attention_forward(const RoutingShape& shape, const AttentionRule& rule,
                            const float* children, const float* weight, const float* prior,
                            float* poses, float* couplings);

}  // namespace remcaps::kernels::cpu
