// What the SIMD loops of both routing algorithms share. They work on one group of images at a time,
// one image per lane.
//
// With an image in each lane every weight is a broadcast scalar, no sum crosses lanes (but the
// weight's gradient), and a pruned block W_ij is skipped for all lanes at once. Arrays of a group
// carry the lane as their last index, aligned to 64 bytes:
//   u [I, D_in, L]   poses, sums and their gradients [J, D_out, L]   couplings [I, J, L]
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

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

/// What the gradients of children and weights are made of, for all groups: each pointer is to the
/// first group's array and followed by the floats from one group's to the next.
struct GroupGradients {
  int64_t groups = 0;
  int64_t children_stride = 0;       ///< of ChildRange::children
  const float* grad_sums = nullptr;  ///< dL/ds_j
  int64_t sums_stride = 0;
  const float* couplings = nullptr;  ///< c_ij; null: all equal to `uniform`
  int64_t couplings_stride = 0;
  float uniform = 0;
};

}  // namespace remcaps::kernels
