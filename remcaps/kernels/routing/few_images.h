// Dynamic routing of a few images on the CPU, without a gradient. dynamic_routing.h puts one image
// into each SIMD lane, so that one image takes as long as a full vector of images. Here each lane
// holds one child instead, and images are routed one after the other. The votes are computed once,
// from matrices that were laid out for this beforehand, and kept for all iterations.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels {

namespace cpu {

/// The largest batch for which this is faster than dynamic_routing_forward().
int64_t most_few_images();

/// The matrices W_ij of a layer, packed in groups of one child per lane.
class ChildMatrices {
 public:
  /// Copies `weight`, [I, J, D_out, D_in]. The shape's batch does not matter.
  ChildMatrices(const RoutingShape& shape, const float* weight);

  const RoutingShape& shape() const { return shape_; }
  /// The matrices of one group of children, [J, D_out, D_in, L].
  const float* group(int64_t g) const { return packed_.get() + g * group_floats_; }

 private:
  RoutingShape shape_;
  int64_t group_floats_;
  Buffer packed_;
};

/// As dynamic_routing_forward(): poses [B, J, D_out]; couplings [B, I, J] or null. The result of an
/// image depends neither on the other images nor on the number of threads.
void few_images_forward(const RoutingShape& shape, const RoutingRule& rule, const float* children,
                        const ChildMatrices& matrices, const float* bias, float* poses,
                        float* couplings);

}  // namespace cpu

// The loops over one group of children of one image. Every lane has its own weights, and the
// parents' poses are broadcast. Only the sums s_j cross lanes, once for many children. The last
// index of a group's arrays is the lane; L = lane_count(). Arrays are aligned to 64 bytes.
namespace simd {

/// Lanes beyond the last child hold zeros.
struct ChildGroup {
  RoutingShape shape;
  const float* weight = nullptr;    ///< W_ij, [J, D_out, D_in, L]
  const float* children = nullptr;  ///< u, [D_in, L]
  float* votes = nullptr;           ///< u^_ij, [J, D_out, L]
  float* sums = nullptr;            ///< each lane's part of s_j, room for [J, D_out, L]
};

/// Computes the votes; sums += u^_ij.
void make_votes(const ChildGroup& group);

/// couplings[j] = c_ij = softmax_j(u^_ij . agreed_j), rounded if there are levels, [J, L];
/// sums += c_ij u^_ij. `agreed` is the sum of the parents' poses so far, [J, D_out].
void route_group(const ChildGroup& group, const float* agreed, const CouplingLevels& levels,
                 float* couplings);

/// Adds up the lanes of `sums`: out [J, D_out].
void sum_lanes(const RoutingShape& shape, const float* sums, float* out);

}  // namespace simd
}  // namespace remcaps::kernels
