// Dynamic routing of a few images on the CPU, without a gradient. dynamic_routing.h puts one image
// into each SIMD lane, so that one image takes as long as a full vector of images. Here each lane
// holds one child instead, and images are routed one after the other. The votes are computed once,
// from matrices that were laid out for this beforehand, and kept for all iterations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels {

namespace cpu {

/// The largest batch for which this is faster than dynamic_routing_forward().
int64_t most_few_images();

/// Whether this CPU reads matrices without their zeros: with AVX-512 it spreads packed values over
/// the lanes of a register in one instruction.
bool reads_sparse_matrices();

/// The matrices W_ij of a layer, packed in groups of one child per lane.
class ChildMatrices {
 public:
  /// Copies `weight`, [I, J, D_out, D_in]. The shape's batch does not matter.
  ChildMatrices(const RoutingShape& shape, const float* weight);
  /// The same without the zeros, given what is left and its places in row-major order, ascending.
  /// Only if reads_sparse_matrices().
  ChildMatrices(const RoutingShape& shape, std::span<const uint32_t> places,
                std::span<const float> values);

  const RoutingShape& shape() const { return shape_; }
  bool is_sparse() const { return !begins_.empty(); }
  /// The matrices of one group of children, [J, D_out, D_in, L]; without the zeros: what is left.
  const float* group(int64_t g) const {
    return packed_.get() + (is_sparse() ? begins_[static_cast<size_t>(g)] : g * group_floats_);
  }
  /// û_ij of all children for one parent, [I, D_out], from the children [I, D_in] of one image. In
  /// plain loops: for a caller who wants few of them.
  void votes_for(int64_t parent, const float* children, float* votes) const;
  /// Which lanes of each register of a group are not zero; null if the zeros are there.
  const uint16_t* masks(int64_t g) const {
    return is_sparse() ? masks_.data() + g * group_masks_ : nullptr;
  }

 private:
  RoutingShape shape_;
  int64_t group_floats_, group_masks_ = 0;
  Buffer packed_;
  std::vector<int64_t> begins_;
  std::vector<uint16_t> masks_;
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

/// Lanes of a register if it can be filled from packed values; else 0.
int64_t expanded_lanes();

/// Lanes beyond the last child hold zeros.
struct ChildGroup {
  RoutingShape shape;
  const float* weight = nullptr;    ///< W_ij, [J, D_out, D_in, L], or what is left of it
  const uint16_t* masks = nullptr;  ///< null, or which lanes of each register are left
  const float* children = nullptr;  ///< u, [D_in, L]
  float* votes = nullptr;           ///< u^_ij, [J, D_out, L]
  float* sums = nullptr;            ///< each lane's part of s_j, room for [J, D_out, L]
  bool fresh = false;               ///< whether the sums begin here, with 0
};

/// Computes the votes of the same children of several images; sums += u^_ij. Weights without zeros
/// are spread over the lanes once for kVotesTogether images.
constexpr int64_t kVotesTogether = 4;
void make_votes(std::span<const ChildGroup> groups);

/// couplings[j] = c_ij = softmax_j(u^_ij . agreed_j), rounded if there are levels, [J, L];
/// sums += c_ij u^_ij. `agreed` is the sum of the parents' poses so far, [J, D_out].
void route_group(const ChildGroup& group, const float* agreed, const CouplingLevels& levels,
                 float* couplings);

/// Adds up the lanes of `sums`: out [J, D_out].
void sum_lanes(const RoutingShape& shape, const float* sums, float* out);

}  // namespace simd
}  // namespace remcaps::kernels
