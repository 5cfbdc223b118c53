// The SIMD loops of dynamic routing: one group of images at a time, one image per lane.
//
// With an image in each lane every weight is a broadcast scalar, no sum crosses lanes (but the
// weight's gradient), and a pruned block W_ij is skipped for all lanes at once. Arrays of a group
// carry the lane as their last index, aligned to 64 bytes:
//   u [I, D_in, L]   poses, sums and their gradients [J, D_out, L]   couplings [I, J, L]
// The votes u^_ij of one child (J x D_out x L floats, 10 KiB in DR-CapsNet) live in the first-level
// cache only.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing_problem.h"

/// Vectors are kept in arrays, which scalable ones cannot be.
#define REMCAPS_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

namespace remcaps::kernels {

/// Images per group: the lanes of this CPU's widest vectors.
int64_t image_lanes();

/// Children begin..end of the layer. Pointers into [I, ...] arrays are to child 0.
struct ChildRange {
  RoutingShape shape;
  int64_t begin = 0, end = 0;
  const float* weight = nullptr;    ///< [I, J, D_out, D_in]
  const uint8_t* alive = nullptr;   ///< [I, J], 0 where W_ij is wholly zero
  const float* children = nullptr;  ///< u, [I, D_in, L]
};

/// Floats of scratch memory a call on one group needs.
int64_t lane_scratch_floats(const RoutingShape& shape);

/// First iteration, whose couplings are all equal: sums[j] = sum_i u^_ij, [J, D_out, L].
void sum_votes(const ChildRange& range, float* sums);

/// A later iteration: c_ij = softmax_j(u^_ij . agreed_j), quantized where levels are given, and
/// sums[j] = sum_i c_ij u^_ij. `agreed` is the sum of the parents' poses of all iterations before:
/// the logits b_ij are linear in them, so they need no memory of their own.
void route_votes(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                 float* couplings, float* sums, float* scratch);

/// sums = scale * (partial sums of all chunks) + bias, then the parents' poses.
struct SquashStep {
  int64_t parents = 0, parent_dim = 0;
  const float* partial = nullptr;  ///< [chunks, J, D_out, L], chunks `stride` floats apart
  int64_t chunks = 0, stride = 0;
  float scale = 1, epsilon = 0;
  const float* bias = nullptr;  ///< [J, D_out] or null
  float* sums = nullptr;        ///< s_j
  float* poses = nullptr;       ///< v_j = squash(s_j)
};
void squash_sums(const SquashStep& step);

/// poses[j] = squash(sums[j]).
void squash_group(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                  float* poses);

/// dL/ds_j out of dL/dv_j.
void squash_gradient(int64_t parents, int64_t parent_dim, const float* sums,
                     const float* grad_poses, float epsilon, float* grad_sums);

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

/// dL/dW_ij = sum over all images of (c_ij dL/ds_j + dL/db_ij agreed_j) u_i^T. Each pointer is to
/// the first group's array and followed by the floats from one group's to the next.
struct WeightGradientStep {
  int64_t groups = 0;
  int64_t children_stride = 0;  ///< of ChildRange::children
  const float* grad_sums = nullptr;
  int64_t sums_stride = 0;
  const float* couplings = nullptr;
  int64_t couplings_stride = 0;
  float uniform = 0;
  const float* agreed = nullptr;       ///< null: the second term is left out; stride as grad_sums
  const float* grad_logits = nullptr;  ///< [end - begin, J, L]
  int64_t logits_stride = 0;
  float* grad_weight = nullptr;  ///< [I, J, D_out, D_in]
  bool accumulate = false;
};
void weight_gradient(const ChildRange& range, const WeightGradientStep& step, float* scratch);

}  // namespace remcaps::kernels
