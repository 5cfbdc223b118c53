// From the gradient of a vote to those of its child and its weights: what both algorithms of the
// SIMD routing share. Included once per target, as lanes-inl.h is.
#if defined(REMCAPS_KERNELS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_GRADIENT_INL_H_
#undef REMCAPS_KERNELS_GRADIENT_INL_H_
#else
#define REMCAPS_KERNELS_GRADIENT_INL_H_
#endif

#include "remcaps/kernels/routing/pose_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

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
