// A child's pose in lanes, and its votes: what all passes of the SIMD routing share. Included once
// per target, as lanes-inl.h is.
#if defined(REMCAPS_KERNELS_POSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_POSE_INL_H_
#undef REMCAPS_KERNELS_POSE_INL_H_
#else
#define REMCAPS_KERNELS_POSE_INL_H_
#endif

#include <type_traits>

#include "remcaps/kernels/routing/steps_simd.h"
#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// A child's pose (or a gradient of its shape) for all lanes: in registers where its size is known
// at compile time, else in memory. kDim = 0 stands for any size.
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

// A child's pose at `memory`, [D_in, L]. One of any size is read where it lies, never written.
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

// call(D_in) with the size of the children's poses as a constant; 0 stands for any other size.
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

// Rows of W_ij that are worked on together: enough independent sums to keep two multiply-add units
// busy, few enough to stay in registers beside the child's pose.
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

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#endif  // toggle
