// The SIMD loops of scaled-distance routing. A vote is shortened to the length of its child where
// it is longer, u'_ij = f_ij u^_ij, wherever it is made; one vote at a time is in memory, in the
// first-level cache.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/steps_simd.h"

namespace remcaps::kernels {

/// Floats of scratch memory that measure_distances and sum_clamped_votes need.
int64_t distance_scratch_floats(const RoutingShape& shape);

/// distances[i, j] = ||v_j - u'_ij||, [I, J, L]; totals [L], their sum over the range. `poses` is
/// v_j, [J, D_out, L].
void measure_distances(const ChildRange& range, const float* poses, float* distances, float* totals,
                       float* scratch);

/// How distances become couplings: c_ij = softmax_j(t d_ij), quantized where levels are given.
struct DistanceCouplings {
  const float* distances = nullptr;  ///< d_ij, [I, J, L]
  float* couplings = nullptr;        ///< the same or another array; null: all couplings are 1
  const float* scales = nullptr;     ///< t of each image, [L]
  CouplingLevels levels;
};

/// Makes the range's couplings and sums[j] = sum_i c_ij u'_ij, [J, D_out, L].
void sum_clamped_votes(const ChildRange& range, const DistanceCouplings& step, float* sums,
                       float* scratch);

/// The way of the full gradient from an iteration's sums to the poses before it, for one group. The
/// gradient of a distance is t dL/db_ij + m, where m, of each image, comes from the mean distance
/// and is known when all children are through:
///   dL/dv_j = t by_logits_j + m by_mean_j
struct DistanceGradientStep {
  const float* grad_sums = nullptr;  ///< dL/ds_j of the iteration
  const float* poses = nullptr;      ///< v_j of the iteration before, that its distances are from
  const float* couplings = nullptr;  ///< c_ij, [I, J, L]
  const float* distances = nullptr;  ///< d_ij, [I, J, L]
  float* grad_logits = nullptr;      ///< dL/db_ij, [I, J, L]
  float* by_logits = nullptr;        ///< sum_i dL/db_ij (v_j - u'_ij) / d_ij, [J, D_out, L]
  float* by_mean = nullptr;          ///< sum_i (v_j - u'_ij) / d_ij, [J, D_out, L]
  float* totals = nullptr;           ///< the sum over the range of dL/db_ij d_ij, [L]
};

/// Floats of scratch memory that distance_gradient needs.
int64_t distance_gradient_scratch_floats(const RoutingShape& shape);

void distance_gradient(const ChildRange& range, const DistanceGradientStep& step, float* scratch);

/// What an iteration after the first adds to the full gradient of a vote, for all groups:
///   dL/du'_ij += c_ij dL/ds_j + e_ij (u'_ij - v_j),  e_ij = (t dL/db_ij + m) / d_ij
/// with v_j of the iteration before. Strides as in GroupGradients.
struct DistanceTerm {
  const float* grad_sums = nullptr;
  const float* poses = nullptr;
  const float* couplings = nullptr;
  const float* distances = nullptr;
  const float* grad_logits = nullptr;
  const float* scales = nullptr;      ///< t, [groups, L]
  const float* grad_means = nullptr;  ///< m, [groups, L]
};

/// The gradients of a range's children and weights for all groups.
struct ClampedGradientStep {
  GroupGradients from;                  ///< c_ij dL/ds_j, with the couplings taken as constants
  const DistanceTerm* later = nullptr;  ///< what is added to it
  int64_t later_count = 0;
  float* grad_children = nullptr;  ///< [I, D_in, L] of the first group, strides as u's
  float* grad_weight = nullptr;    ///< [I, J, D_out, D_in] or null
};

/// Floats of scratch memory that clamped_gradient needs.
int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups);

void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch);

}  // namespace remcaps::kernels
