#include "remcaps/kernels/routing/few_images.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/few_images_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/routing/votes_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::ChildGroup;

// Components x to x + kCount - 1 of the votes.
template <int64_t kDim, int kCount>
HWY_INLINE void make_components(const ChildGroup& group, const Pose<kDim>& u, int64_t dim,
                                int64_t x) {
  const float* w = group.weight + x * dim * kLanes;
  F vote[kCount];
  for (int r = 0; r < kCount; ++r) vote[r] = zero();
#pragma GCC unroll 16
  for (int64_t k = 0; k < dim; ++k)
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r)
      vote[r] = fma(load(w + (r * dim + k) * kLanes), u.get(k), vote[r]);
  for (int r = 0; r < kCount; ++r) {
    store(vote[r], group.votes + (x + r) * kLanes);
    float* sum = group.sums + (x + r) * kRegisterLanes;
    store_register(add_register(load_register(sum), folded(vote[r])), sum);
  }
}

template <int64_t kDim>
void make_votes_of(const ChildGroup& group) {
  const int64_t dim = Pose<kDim>::dim(group.shape), size = group.shape.pose_size();
  const Pose<kDim> u = pose_at<kDim>(group.children);
  int64_t x = 0;
  for (; x + kRows <= size; x += kRows) make_components<kDim, kRows>(group, u, dim, x);
  for (; x < size; ++x) make_components<kDim, 1>(group, u, dim, x);
}

#if defined(REMCAPS_HIGHWAY) && (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)
constexpr int64_t kExpandedLanes = kRegisterLanes;

// The next values, one in each lane of the mask; zero in the others.
HWY_INLINE Register expanded(uint16_t mask, const float*& values) {
  const Register x{_mm512_maskz_expandloadu_ps(mask, values)};
  values += _mm_popcnt_u32(mask);
  return x;
}

// As make_votes_of(), of matrices without zeros.
template <int64_t kDim>
void make_sparse_votes_of(const ChildGroup& group) {
  const int64_t dim = Pose<kDim>::dim(group.shape), size = group.shape.pose_size();
  const Pose<kDim> u = pose_at<kDim>(group.children);
  const float* weight = group.weight;
  const uint16_t* mask = group.masks;
  for (int64_t x = 0; x < size; ++x) {
    F vote = zero();
#pragma GCC unroll 16
    for (int64_t k = 0; k < dim; ++k) {
      const F pose = u.get(k);
      for (int i = 0; i < kRegisters; ++i)
        vote.part[i] = fma(expanded(*mask++, weight), pose.part[i], vote.part[i]);
    }
    store(vote, group.votes + x * kLanes);
    float* sum = group.sums + x * kRegisterLanes;
    store_register(add_register(load_register(sum), folded(vote)), sum);
  }
}
#else
constexpr int64_t kExpandedLanes = 0;

template <int64_t kDim>
void make_sparse_votes_of(const ChildGroup&) {}  // no such matrices are made
#endif

int64_t expanded_lanes_of() {
  return kExpandedLanes;
}

void make_votes_any(const ChildGroup& group) {
  if (group.masks != nullptr)
    return with_child_dim(group.shape,
                          [&](auto dim) HWY_ATTR { make_sparse_votes_of<dim()>(group); });
  with_child_dim(group.shape, [&](auto dim) HWY_ATTR { make_votes_of<dim()>(group); });
}

void route_group_of(const ChildGroup& group, const float* agreed, const CouplingLevels& levels,
                    float* couplings) {
  const int64_t J = group.shape.parents, D = group.shape.parent_dim;
  F highest = set(-INFINITY);
  for (int64_t j = 0; j < J; ++j) {
    F agreement = zero();
    for (int64_t x = j * D; x < (j + 1) * D; ++x)
      agreement = fma(load(group.votes + x * kLanes), set(agreed[x]), agreement);
    store(agreement, couplings + j * kLanes);
    highest = max(highest, agreement);
  }
  softmax_over_parents(J, couplings, highest);
  for (int64_t j = 0; j < J; ++j) {
    F c = load(couplings + j * kLanes);
    if (levels.count > 0) {
      c = quantized(c, levels);
      store(c, couplings + j * kLanes);
    }
    for (int64_t x = j * D; x < (j + 1) * D; ++x) {
      float* sum = group.sums + x * kRegisterLanes;
      store_register(fma_folded(c, load(group.votes + x * kLanes), load_register(sum)), sum);
    }
  }
}

void sum_lanes_of(const RoutingShape& shape, const float* sums, float* out) {
  const int64_t size = shape.pose_size();
  const auto sum = [&](int64_t x) HWY_ATTR { return load_register(sums + x * kRegisterLanes); };
  int64_t x = 0;
  for (; x + 4 <= size; x += 4)
    store_four_sums(sum(x), sum(x + 1), sum(x + 2), sum(x + 3), out + x);
  for (; x < size; ++x) out[x] = sum_of_lanes(sum(x));
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(expanded_lanes_of);
HWY_EXPORT(make_votes_any);
HWY_EXPORT(route_group_of);
HWY_EXPORT(sum_lanes_of);
#endif

int64_t expanded_lanes() {
  return REMCAPS_DISPATCH(expanded_lanes_of)();
}

void make_votes(const ChildGroup& group) {
  REMCAPS_DISPATCH(make_votes_any)(group);
}

void route_group(const ChildGroup& group, const float* agreed, const CouplingLevels& levels,
                 float* couplings) {
  REMCAPS_DISPATCH(route_group_of)(group, agreed, levels, couplings);
}

void sum_lanes(const RoutingShape& shape, const float* sums, float* out) {
  REMCAPS_DISPATCH(sum_lanes_of)(shape, sums, out);
}

}  // namespace remcaps::kernels::simd
#endif
