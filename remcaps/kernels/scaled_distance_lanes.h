// The SIMD loops of scaled-distance routing. A vote is shortened to the length of its child where
// it is longer, u'_ij = f_ij u^_ij, wherever it is made; one vote at a time is in memory, in the
// first-level cache.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing_lanes.h"

namespace remcaps::kernels {

/// Floats of scratch memory that measure_distances and sum_clamped_votes need.
int64_t distance_scratch_floats(const RoutingShape& shape);

/// distances[i, j] = ||v_j - u'_ij||, [I, J, L]; totals [L], their sum over the range. `poses` is
/// v_j, [J, D_out, L].
void measure_distances(const ChildRange& range, const float* poses, float* distances, float* totals,
                       float* scratch);

/// How distances become couplings: c_ij = softmax_j(t d_ij), quantized where levels are given.
struct DistanceCouplings {
  float* couplings = nullptr;     ///< [I, J, L], the distances at first; null: all couplings are 1
  const float* scales = nullptr;  ///< t of each image, [L]
  CouplingLevels levels;
};

/// Makes the range's couplings and sums[j] = sum_i c_ij u'_ij, [J, D_out, L].
void sum_clamped_votes(const ChildRange& range, const DistanceCouplings& step, float* sums,
                       float* scratch);

/// Floats of scratch memory that clamped_gradient needs.
int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups);

/// The gradients of a range's children and weights for all groups, with the couplings taken as
/// constants.
struct ClampedGradientStep {
  GroupGradients from;
  float* grad_children = nullptr;  ///< [I, D_in, L] of the first group, strides as u's
  float* grad_weight = nullptr;    ///< [I, J, D_out, D_in] or null
};
void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch);

}  // namespace remcaps::kernels
