// A vote and the factor that shortens it to its child's length: what all passes of scaled-distance
// routing share. Included once per target, as lanes-inl.h is.
#if defined(REMCAPS_KERNELS_CLAMPED_VOTE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_CLAMPED_VOTE_INL_H_
#undef REMCAPS_KERNELS_CLAMPED_VOTE_INL_H_
#else
#define REMCAPS_KERNELS_CLAMPED_VOTE_INL_H_
#endif

#include "remcaps/kernels/routing/pose_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

template <int64_t kDim>
HWY_INLINE F squared_length(const Pose<kDim>& u, int64_t dim) {
  F sum = zero();
  for (int64_t k = 0; k < dim; ++k) sum = fma(u.get(k), u.get(k), sum);
  return sum;
}

// f_ij, as clamp_factor of host_device.h.
HWY_INLINE F clamp_factors(F vote2, F child2) {
  return if_greater(vote2, child2, sqrt(div(child2, vote2)), set(1.0F));
}

// The vote u^_ij as it is, kept in `vote`, [D_out, L]; returns f_ij.
template <int64_t kDim>
HWY_INLINE F make_vote(const float* w, const Pose<kDim>& u, int64_t dim, int64_t parent_dim,
                       F child2, float* vote) {
  F vote2 = zero();
  for_each_component(w, u, dim, parent_dim, [&](int64_t d, F x) HWY_ATTR {
    store(x, vote + d * kLanes);
    vote2 = fma(x, x, vote2);
  });
  return clamp_factors(vote2, child2);
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#endif  // toggle
