// What a fused routing kernel is asked to do, on raw pointers: shared by the CPU and CUDA kernels.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// A fully connected capsule layer: I children of D_in dimensions vote for J parents of D_out.
///   children [B, I, D_in]   weight [I, J, D_out, D_in]   bias [J, D_out] or none
struct RoutingShape {
  int64_t batch = 0;       ///< B
  int64_t children = 0;    ///< I
  int64_t parents = 0;     ///< J
  int64_t child_dim = 0;   ///< D_in
  int64_t parent_dim = 0;  ///< D_out

  int64_t pose_size() const { return parents * parent_dim; }  ///< of all parents of one image
  bool operator==(const RoutingShape&) const = default;
};

/// Levels the couplings of the last iteration are rounded to: level k where edges[k] < c <=
/// edges[k + 1] (couplings beyond the outer edges go to the first and last level). The edges are
/// float32 rounded down, which decides every comparison with a float32 coupling as float64 does.
struct CouplingLevels {
  const float* edges = nullptr;    ///< [count + 1]
  const float* centres = nullptr;  ///< [count]
  int64_t count = 0;               ///< 0: couplings are left as they are
};

/// What makes a parent's pose and a vote agree.
enum class Agreement {
  kProduct,        ///< dynamic routing: <u^_ij, v_j>, added up over the iterations
  kBatchDistance,  ///< scaled distance: ||v_j - u^_ij|| against its mean over the batch
  kImageDistance,  ///< against its mean over the image
};

struct RoutingRule {
  Agreement agreement = Agreement::kProduct;
  int64_t iterations = 3;
  float epsilon = 1e-6F;             ///< inside the square root of squash
  bool bias_every_iteration = true;  ///< false: the bias is added in the last iteration only
  /// c_ij of the first iteration: 1 / J, or its level where that iteration is also the last.
  float first_coupling = 0;
  CouplingLevels levels;
  /// What the gradient is to be. True: through all iterations. False, the published one: children
  /// and weight receive the last iteration's direct term (its couplings taken as constants). The
  /// bias receives the exact gradient from dynamic routing, where it is live in every iteration it
  /// is added in, and the last iteration's from scaled distances, where all before it is a
  /// constant.
  bool full_gradient = false;

  /// Whether the gradient of scaled-distance routing goes back beyond the last iteration: couplings
  /// that are rounded are constants, as the first ones are.
  bool distances_have_gradient() const {
    return full_gradient && iterations > 1 && levels.count == 0;
  }
};

/// Where the gradients go; null: not wanted.
struct RoutingGradients {
  float* children = nullptr;  ///< [B, I, D_in]
  float* weight = nullptr;    ///< [I, J, D_out, D_in]
  float* bias = nullptr;      ///< [J, D_out]
};

}  // namespace remcaps::kernels
