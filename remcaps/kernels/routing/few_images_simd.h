// The SIMD loops of dynamic routing for few images: one image at a time, one child per lane.
//
// Votes, agreements and couplings stay within their lanes, as with an image per lane
// (routing_lanes.h); here every lane has weights of its own, the parents' poses are the broadcast
// scalars, and of all sums only s_j crosses lanes, once for many children. Arrays of a group of L =
// image_lanes() children carry the lane as their last index, aligned to 64 bytes.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels {

/// A group of children of one image. Lanes beyond the last child hold zeros.
struct ChildGroup {
  RoutingShape shape;
  const float* weight = nullptr;    ///< W_ij, [J, D_out, D_in, L]
  const float* children = nullptr;  ///< u, [D_in, L]
  float* votes = nullptr;           ///< u^_ij, [J, D_out, L]
  float* sums = nullptr;            ///< s_j in lanes, room for [J, D_out, L]
};

/// Makes the votes; sums += u^_ij.
void make_votes(const ChildGroup& group);

/// couplings[j] = c_ij = softmax_j(u^_ij . agreed_j), quantized where levels are given, [J, L];
/// sums += c_ij u^_ij. `agreed` is the sum of the parents' poses so far, [J, D_out].
void route_group(const ChildGroup& group, const float* agreed, const CouplingLevels& levels,
                 float* couplings);

/// The sums of all lanes, [J, D_out].
void add_lanes(const RoutingShape& shape, const float* sums, float* out);

}  // namespace remcaps::kernels
