// What a routing kernel is asked to do. The CPU and the CUDA kernels share these structs.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// A fully connected capsule layer: I children of D_in numbers vote for J parents of D_out numbers.
///   children  [B, I, D_in]
///   weight    [I, J, D_out, D_in]
///   bias      [J, D_out], or none
struct RoutingShape {
  int64_t batch = 0;       ///< B
  int64_t children = 0;    ///< I
  int64_t parents = 0;     ///< J
  int64_t child_dim = 0;   ///< D_in
  int64_t parent_dim = 0;  ///< D_out

  int64_t pose_size() const { return parents * parent_dim; }  ///< all parents of one image
  bool operator==(const RoutingShape&) const = default;
};

/// The levels that the couplings of the last iteration are rounded to. A coupling c becomes
/// centres[k] if edges[k] < c <= edges[k + 1]. Couplings beyond the outer edges go to the first or
/// the last level. The edges are float64 numbers rounded down to float32, so that comparing them
/// with a float32 coupling gives the same answer as in float64.
struct CouplingLevels {
  const float* edges = nullptr;    ///< [count + 1]
  const float* centres = nullptr;  ///< [count]
  int64_t count = 0;               ///< 0: couplings are not rounded
};

/// The level of one coupling.
inline float rounded(const CouplingLevels& levels, float coupling) {
  int64_t level = 0;
  while (level + 1 < levels.count && coupling > levels.edges[level + 1]) ++level;
  return levels.centres[level];
}

/// How the agreement between a parent's pose v_j and a vote u^_ij is measured.
enum class Agreement {
  kProduct,        ///< dynamic routing: <u^_ij, v_j>, added up over the iterations
  kBatchDistance,  ///< scaled distance: ||v_j - u^_ij|| relative to its mean over the batch
  kImageDistance,  ///< scaled distance: relative to its mean over the image
};

struct RoutingRule {
  Agreement agreement = Agreement::kProduct;
  int64_t iterations = 3;
  float epsilon = 1e-6F;             ///< inside the square root of squash
  bool bias_every_iteration = true;  ///< false: the bias is added in the last iteration only
  /// c_ij of the first iteration: 1 / J, rounded to its level if there is only one iteration.
  float first_coupling = 0;
  CouplingLevels levels;
  /// True: the gradient goes through all iterations. False: the published gradient. It gives
  /// children and weight the direct term of the last iteration, with the couplings as constants.
  /// The bias gets its exact gradient in dynamic routing. In scaled-distance routing it gets the
  /// last iteration's gradient, since everything before is a constant there.
  bool full_gradient = false;

  /// Whether the gradient of scaled-distance routing goes back beyond the last iteration. Rounded
  /// couplings are constants, and so are the couplings of the first iteration.
  bool distances_have_gradient() const {
    return full_gradient && iterations > 1 && levels.count == 0;
  }
};

/// Where the gradients are written; null: not wanted.
struct RoutingGradients {
  float* children = nullptr;  ///< [B, I, D_in]
  float* weight = nullptr;    ///< [I, J, D_out, D_in]
  float* bias = nullptr;      ///< [J, D_out]
};

namespace cuda {

template <int kDinValue, int kDoutValue>
struct PoseSizes {
  static constexpr int kDin = kDinValue, kDout = kDoutValue;
};

/// Calls `fast` with the pose sizes as compile-time constants if the CUDA kernels are compiled for
/// them, which they are for the networks of this project. Calls `any` for other sizes.
template <typename Fast, typename Any>
auto with_pose_sizes(int64_t child_dim, int64_t parent_dim, const Fast& fast, const Any& any) {
  if (child_dim == 8 && parent_dim == 16) return fast(PoseSizes<8, 16>{});
  if (child_dim == 8 && parent_dim == 8) return fast(PoseSizes<8, 8>{});
  if (child_dim == 8 && parent_dim == 32) return fast(PoseSizes<8, 32>{});
  if (child_dim == 16 && parent_dim == 16) return fast(PoseSizes<16, 16>{});
  return any();
}

}  // namespace cuda
}  // namespace remcaps::kernels
