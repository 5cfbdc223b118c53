// Scaled-distance routing of a fully connected capsule layer. A vote that is longer than its child
// is shortened to the child's length, u'_ij = f_ij u^_ij. Votes are computed where they are needed
// and never stored. Arguments and conventions are those of dynamic_routing.h.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/routing/steps.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

namespace cpu {

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule);

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved);

/// Computes the votes once. The full gradient computes them once more for each iteration after the
/// first.
void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients);

}  // namespace cpu

// The loops over one group of images; see steps.h for the layout of their arrays. One vote at a
// time is in memory, in the first-level cache.
namespace simd {

/// Floats of scratch memory that measure_distances() and sum_clamped_votes() need.
int64_t distance_scratch_floats(const RoutingShape& shape);

/// distances[i, j] = ||v_j - u'_ij||, [I, J, L], and totals [L], their sum over the range. `poses`
/// is v_j, [J, D_out, L].
void measure_distances(const ChildRange& range, const float* poses, float* distances, float* totals,
                       float* scratch);

/// How distances become couplings: c_ij = softmax_j(t d_ij), rounded if there are levels.
struct DistanceCouplings {
  const float* distances = nullptr;  ///< d_ij, [I, J, L]
  float* couplings = nullptr;        ///< the same or another array; null: all couplings are 1
  const float* scales = nullptr;     ///< t of each image, [L]
  CouplingLevels levels;
};

/// Computes the range's couplings and sums[j] = sum_i c_ij u'_ij, [J, D_out, L].
void sum_clamped_votes(const ChildRange& range, const DistanceCouplings& step, float* sums,
                       float* scratch);

/// A step of the full gradient: from an iteration's sums to the poses of the iteration before, for
/// one group. The gradient of a distance is t dL/db_ij + m. The second term, one number per image,
/// comes from the mean distance and is known only after all children. Therefore:
///   dL/dv_j = t by_logits_j + m by_mean_j
struct DistanceGradientStep {
  const float* grad_sums = nullptr;  ///< dL/ds_j of the iteration
  const float* poses = nullptr;      ///< v_j of the iteration before
  const float* couplings = nullptr;  ///< c_ij, [I, J, L]
  const float* distances = nullptr;  ///< d_ij between `poses` and the votes, [I, J, L]
  float* grad_logits = nullptr;      ///< dL/db_ij, [I, J, L]
  float* by_logits = nullptr;        ///< sum_i dL/db_ij (v_j - u'_ij) / d_ij, [J, D_out, L]
  float* by_mean = nullptr;          ///< sum_i (v_j - u'_ij) / d_ij, [J, D_out, L]
  float* totals = nullptr;           ///< the sum over the range of dL/db_ij d_ij, [L]
};

/// Floats of scratch memory that distance_gradient() needs.
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

/// The gradients of a range's children and weights, for all groups.
struct ClampedGradientStep {
  GroupGradients from;                  ///< c_ij dL/ds_j, with the couplings as constants
  const DistanceTerm* later = nullptr;  ///< what is added to it
  int64_t later_count = 0;
  float* grad_children = nullptr;  ///< [I, D_in, L] of the first group; strides as the children's
  float* grad_weight = nullptr;    ///< [I, J, D_out, D_in] or null
};

/// Floats of scratch memory that clamped_gradient() needs.
int64_t clamped_gradient_scratch_floats(const RoutingShape& shape, int64_t groups);

void clamped_gradient(const ChildRange& range, const ClampedGradientStep& step, float* scratch);

}  // namespace simd

namespace cuda {

/// Whether there are kernels for these pose sizes: children of 8 numbers with parents of 8, 16 or
/// 32, and 16 with 16. The answer is the same in a build without CUDA.
inline bool has_scaled_distance_kernels(int64_t child_dim, int64_t parent_dim) {
  return with_pose_sizes(
      child_dim, parent_dim, [](auto) { return true; }, [] { return false; });
}

#ifdef REMCAPS_CUDA
int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule);
int64_t scaled_distance_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves);
int64_t scaled_distance_backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                                const RoutingGradients& gradients);

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream);

/// Computes the votes once. The full gradient computes them twice more for each iteration after the
/// first.
void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream);
#endif

}  // namespace cuda
}  // namespace remcaps::kernels
