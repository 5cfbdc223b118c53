// A child's pose in lanes, and its votes: what both passes of the SIMD routing share. Included once
// per target, as lanes-inl.h is.
#if defined(REMCAPS_KERNELS_POSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_POSE_INL_H_
#undef REMCAPS_KERNELS_POSE_INL_H_
#else
#define REMCAPS_KERNELS_POSE_INL_H_
#endif

#include "remcaps/kernels/dynamic_routing_lanes.h"
#include "remcaps/kernels/lanes-inl.h"

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

// The pose of child i. In memory it is read where it lies, never written.
template <int64_t kDim>
HWY_INLINE Pose<kDim> child_pose(const ChildRange& range, int64_t i) {
  const float* memory = range.children + i * range.shape.child_dim * kLanes;
  Pose<kDim> pose(const_cast<float*>(memory));
  if constexpr (kDim > 0)
    for (int64_t k = 0; k < kDim; ++k) pose.put(k, load(memory + k * kLanes));
  return pose;
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

// into[r] += scale * (row r of W_ij times u).
template <int64_t kDim, int kCount>
HWY_INLINE void accumulate_rows(const float* rows, const Pose<kDim>& u, int64_t dim, F scale,
                                float* into) {
  F sum[kCount];
  for (int r = 0; r < kCount; ++r) sum[r] = zero();
  add_votes(rows, u, dim, sum);
  for (int r = 0; r < kCount; ++r)
    store(fma(scale, sum[r], load(into + r * kLanes)), into + r * kLanes);
}

// into[d] += scale * u^_ij[d] for all of a parent's components.
template <int64_t kDim>
HWY_INLINE void accumulate_vote(const float* w, const Pose<kDim>& u, int64_t dim,
                                int64_t parent_dim, F scale, float* into) {
  int64_t d = 0;
  for (; d + kRows <= parent_dim; d += kRows)
    accumulate_rows<kDim, kRows>(w + d * dim, u, dim, scale, into + d * kLanes);
  for (; d < parent_dim; ++d)
    accumulate_rows<kDim, 1>(w + d * dim, u, dim, scale, into + d * kLanes);
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#endif  // toggle
