// Self-attention routing (Efficient-CapsNet) on the CPU, without a gradient.
#pragma once

#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

/// c_ij = softmax_j(<u^_ij, sum_k u^_kj> / sqrt(D_out)) + prior_ij. With levels, couplings are
/// clamped to [0, 1] and rounded. v_j = squash(sum_i c_ij u^_ij).
///   prior      [I, J]
///   poses      [B, J, D_out]
///   couplings  [B, I, J], or null: not wanted
void self_attention_forward(const RoutingShape& shape, const CouplingLevels& levels,
                            SquashForm form, float epsilon, const float* children,
                            const float* weight, const float* prior, float* poses,
                            float* couplings);

}  // namespace remcaps::kernels::cpu
