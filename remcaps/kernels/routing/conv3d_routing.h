// Routing through a 3-D convolution (DeepCaps) on the CPU, without a gradient.
#pragma once

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

/// T child types vote for J parent types at each of the P = H x W places. A vote is the output of a
/// 3x3 convolution over the first `depth` components of a child type.
struct Conv3dShape {
  int64_t batch = 0, height = 0, width = 0;
  int64_t types = 0, child_dim = 0;     ///< T, D_in
  int64_t parents = 0, parent_dim = 0;  ///< J, D_out
  int64_t depth = 0;

  int64_t places() const { return height * width; }
  int64_t seen() const { return depth * 9; }  ///< numbers that a vote depends on
};

struct Conv3dRule {
  int64_t iterations = 3;
  float epsilon = 1e-8F;
  bool squash_map = false;  ///< squash a parent type at all places together
  CouplingLevels levels;
};

///   children   [B, T * D_in, H, W] in any layout
///   weight     [J * D_out, depth, 3, 3]
///   vote_bias  [J * D_out] or null; added to every vote
///   bias       [J, D_out] or null; added in every iteration
///   poses      [B, J * D_out, H, W]
///   couplings  [B, P, T, J], or null: not wanted
/// The softmax of a child type runs over all parents and places together.
void conv3d_routing_forward(const Conv3dShape& shape, const Conv3dRule& rule,
                            const MapStrides& strides, const float* children, const float* weight,
                            const float* vote_bias, const float* bias, float* poses,
                            float* couplings);

}  // namespace remcaps::kernels::cpu
