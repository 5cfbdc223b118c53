// SIMD code that the routing kernels share: a child's pose and its votes, couplings, and the way
// from the gradient of a vote to the gradients of its child and its weights. Included once per
// instruction set, like simd/lanes.h.
#if defined(REMCAPS_KERNELS_VOTES_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_VOTES_SIMD_H_
#undef REMCAPS_KERNELS_VOTES_SIMD_H_
#else
#define REMCAPS_KERNELS_VOTES_SIMD_H_
#endif

#include <type_traits>

#include "remcaps/kernels/routing/steps.h"
#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::ChildRange;
using simd::GroupGradients;

// A child's pose, or a gradient of the same shape, for all lanes. If its size kDim is known at
// compile time it is in registers. kDim = 0 stands for any size; the pose is in memory then.
template <int64_t kDim>
class Pose {
 public:
  explicit Pose(float*) {}
  HWY_INLINE F get(int64_t k) const { return values_[k]; }
  HWY_INLINE void put(int64_t k, F x) { values_[k] = x; }
  static HWY_INLINE int64_t dim(const RoutingShape&) { return kDim; }

 private:
  F values_[kDim];
};

template <>
class Pose<0> {
 public:
  explicit Pose(float* memory) : memory_(memory) {}
  HWY_INLINE F get(int64_t k) const { return load(memory_ + k * kLanes); }
  HWY_INLINE void put(int64_t k, F x) { store(x, memory_ + k * kLanes); }
  static HWY_INLINE int64_t dim(const RoutingShape& shape) { return shape.child_dim; }

 private:
  float* memory_;
};

// The child's pose at `memory`, [D_in, L]. If kDim is 0 it is not copied, and must not be changed.
template <int64_t kDim>
HWY_INLINE Pose<kDim> pose_at(const float* memory) {
  Pose<kDim> pose(const_cast<float*>(memory));
  if constexpr (kDim > 0)
    for (int64_t k = 0; k < kDim; ++k) pose.put(k, load(memory + k * kLanes));
  return pose;
}

template <int64_t kDim>
HWY_INLINE Pose<kDim> child_pose(const ChildRange& range, int64_t i) {
  return pose_at<kDim>(range.children + i * range.shape.child_dim * kLanes);
}

// call(D_in) with the size of the children's poses as a compile-time constant if it is 8 or 16,
// else call(0).
template <typename Call>
void with_child_dim(const RoutingShape& shape, const Call& call) {
  switch (shape.child_dim) {
    case 8:
      return call(std::integral_constant<int64_t, 8>());
    case 16:
      return call(std::integral_constant<int64_t, 16>());
    default:
      return call(std::integral_constant<int64_t, 0>());
  }
}

// Rows of W_ij that are multiplied together: enough independent sums to keep two multiply-add units
// busy, and few enough to fit into registers beside the child's pose.
constexpr int kRows = 4;

// sum[r] += row r of W_ij times u: components of a vote.
template <int64_t kDim, int kCount>
HWY_INLINE void add_votes(const float* rows, const Pose<kDim>& u, int64_t dim, F (&sum)[kCount]) {
#pragma GCC unroll 16
  for (int64_t k = 0; k < dim; ++k)
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) sum[r] = fma(set(rows[r * dim + k]), u.get(k), sum[r]);
}

template <int64_t kDim, int kCount, typename Take>
HWY_INLINE void take_rows(const float* rows, const Pose<kDim>& u, int64_t dim, int64_t first,
                          const Take& take) {
  F sum[kCount];
  for (int r = 0; r < kCount; ++r) sum[r] = zero();
  add_votes(rows, u, dim, sum);
  for (int r = 0; r < kCount; ++r) take(first + r, sum[r]);
}

// take(d, u^_ij[d]) for all components of a vote.
template <int64_t kDim, typename Take>
HWY_INLINE void for_each_component(const float* w, const Pose<kDim>& u, int64_t dim,
                                   int64_t parent_dim, const Take& take) {
  int64_t d = 0;
  for (; d + kRows <= parent_dim; d += kRows) take_rows<kDim, kRows>(w + d * dim, u, dim, d, take);
  for (; d < parent_dim; ++d) take_rows<kDim, 1>(w + d * dim, u, dim, d, take);
}

// into[d] += scale * u^_ij[d].
template <int64_t kDim>
HWY_INLINE void accumulate_vote(const float* w, const Pose<kDim>& u, int64_t dim,
                                int64_t parent_dim, F scale, float* into) {
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(fma(scale, x, load(into + d * kLanes)), into + d * kLanes);
  });
}

// Each coupling rounded to its level.
HWY_INLINE F quantized(F coupling, const CouplingLevels& levels) {
  F value = set(levels.centres[0]);
  for (int64_t k = 1; k < levels.count; ++k)
    value = if_greater(coupling, set(levels.edges[k]), set(levels.centres[k]), value);
  return value;
}

// Turns the logits of one child, [J, L], into its couplings, in place. `highest` is their maximum.
HWY_INLINE void softmax_over_parents(int64_t parents, float* logits, F highest) {
  F total = zero();
  for (int64_t j = 0; j < parents; ++j) {
    const F e = exp(sub(load(logits + j * kLanes), highest));
    store(e, logits + j * kLanes);
    total = add(total, e);
  }
  const F scale = div(set(1.0F), total);
  for (int64_t j = 0; j < parents; ++j)
    store(mul(load(logits + j * kLanes), scale), logits + j * kLanes);
}

// c_ij of a group's images; `pair` is i J + j.
HWY_INLINE F coupling_of(const GroupGradients& from, int64_t group, int64_t pair) {
  return from.couplings == nullptr
             ? set(from.uniform)
             : load(from.couplings + group * from.couplings_stride + pair * kLanes);
}

// back[k] += sum_d W[d, k] x[d].
template <int64_t kDim>
HWY_INLINE void add_transposed(const float* w, int64_t parent_dim, const float* x, int64_t dim,
                               Pose<kDim>& back) {
  for (int64_t d = 0; d < parent_dim; ++d, w += dim) {
    const F value = load(x + d * kLanes);
    for (int64_t k = 0; k < dim; ++k) back.put(k, fma(set(w[k]), value, back.get(k)));
  }
}

// out[k] (+)= the sum of x[k] over all images.
template <int64_t kDim>
HWY_INLINE void put_sums(const Pose<kDim>& x, int64_t dim, bool accumulate, float* out) {
  if constexpr (kDim > 0) {
    static_assert(kDim % 4 == 0);
    float sums[kDim];
    for (int64_t k = 0; k < kDim; k += 4)
      store_four_sums(x.get(k), x.get(k + 1), x.get(k + 2), x.get(k + 3), sums + k);
    for (int64_t k = 0; k < kDim; ++k) out[k] = accumulate ? out[k] + sums[k] : sums[k];
  } else {
    for (int64_t k = 0; k < dim; ++k)
      out[k] = sum_of_lanes(x.get(k)) + (accumulate ? out[k] : 0.0F);
  }
}

// out[d, k] (+)= the sum over all images of grad_vote(group, d) u_i[k]: dL/dW_ij.
template <int64_t kDim, typename GradVote>
HWY_INLINE void block_gradient(const ChildRange& range, const GroupGradients& from, int64_t i,
                               const GradVote& grad_vote, bool accumulate, float* scratch,
                               float* out) {
  const int64_t dim = Pose<kDim>::dim(range.shape);
  for (int64_t d = 0; d < range.shape.parent_dim; ++d, out += dim) {
    Pose<kDim> sum(scratch);
    for (int64_t k = 0; k < dim; ++k) sum.put(k, zero());
    for (int64_t group = 0; group < from.groups; ++group) {
      const F gradient = grad_vote(group, d);
      const float* u = range.children + group * from.children_stride + i * dim * kLanes;
      for (int64_t k = 0; k < dim; ++k) sum.put(k, fma(gradient, load(u + k * kLanes), sum.get(k)));
    }
    put_sums(sum, dim, accumulate, out);
  }
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#endif  // toggle
