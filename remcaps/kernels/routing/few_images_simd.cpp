#include "remcaps/kernels/routing/few_images.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/few_images_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/routing/votes_simd.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::ChildGroup;

HWY_INLINE Register sum_before(const ChildGroup& group, const float* sum) {
  return group.fresh ? set_register(0.0F) : load_register(sum);
}

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
    store_register(add_register(sum_before(group, sum), folded(vote[r])), sum);
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

static_assert(kRegisters == 2);

// The next values, one in each lane of the mask; `zero` in the others. On Zen 5 the instruction
// waits for the last value of the register that it writes, even where it overwrites all lanes. A
// copy of `zero`, which the compiler must take for any number, is there at once. A load of its own
// takes less time than the one in the instruction, and the compiler shall not put it back there.
HWY_INLINE Register expanded(Register zero, uint32_t mask, const float* values) {
  __m512 next = _mm512_loadu_ps(values);
  asm("" : "+v"(next));
  return Register{_mm512_mask_expand_ps(zero.raw, static_cast<__mmask16>(mask), next)};
}

HWY_INLINE Register opaque_zero() {
  __m512 zero = _mm512_setzero_ps();
  asm("" : "+v"(zero));
  return Register{zero};
}

// As make_votes_of(), of matrices without zeros and kImages images.
template <int64_t kDim, int kImages>
void make_sparse_votes_of(const ChildGroup* groups) {
  const RoutingShape& shape = groups->shape;
  const int64_t dim = Pose<kDim>::dim(shape), size = shape.pose_size();
  const Register zero = opaque_zero();
  // The pose of a single image is in registers.
  const Pose<kImages == 1 ? kDim : 0> single =
      pose_at < kImages == 1 ? kDim : 0 > (groups->children);
  const float* weight = groups->weight;
  const uint16_t* mask = groups->masks;
  for (int64_t x = 0; x < size; ++x) {
    Register vote[kImages][kRegisters];
    for (int image = 0; image < kImages; ++image)
      for (int i = 0; i < kRegisters; ++i) vote[image][i] = zero;
#pragma GCC unroll 16
    for (int64_t k = 0; k < dim; ++k, mask += kRegisters) {
      uint32_t both;  // one load for two masks
      std::memcpy(&both, mask, sizeof(both));
      uint32_t upper = both >> 16;
      asm("" : "+r"(upper));  // not a shift of the mask register, which takes longer
      const Register parts[kRegisters] = {
          expanded(zero, both, weight),
          expanded(zero, upper, weight + _mm_popcnt_u32(both & 0xFFFF))};
      weight += _mm_popcnt_u32(both);
      for (int image = 0; image < kImages; ++image) {
        const F u = kImages == 1 ? single.get(k) : load(groups[image].children + k * kLanes);
        for (int i = 0; i < kRegisters; ++i)
          vote[image][i] = fma(parts[i], u.part[i], vote[image][i]);
      }
    }
    for (int image = 0; image < kImages; ++image) {
      float* sums = groups[image].sums + x * kRegisterLanes;
      Register sum = sum_before(groups[image], sums);
      for (int i = 0; i < kRegisters; ++i) {
        store_register(vote[image][i], groups[image].votes + x * kLanes + i * kRegisterLanes);
        sum = add_register(sum, vote[image][i]);
      }
      store_register(sum, sums);
    }
  }
}

template <int64_t kDim>
void make_sparse_votes(std::span<const ChildGroup> groups) {
  for (; groups.size() >= simd::kVotesTogether; groups = groups.subspan(simd::kVotesTogether))
    make_sparse_votes_of<kDim, simd::kVotesTogether>(groups.data());
  for (const ChildGroup& group : groups) make_sparse_votes_of<kDim, 1>(&group);
}
#else
constexpr int64_t kExpandedLanes = 0;

template <int64_t kDim>
void make_sparse_votes(std::span<const ChildGroup>) {}  // no such matrices are made
#endif

int64_t expanded_lanes_of() {
  return kExpandedLanes;
}

void make_votes_any(std::span<const ChildGroup> groups) {
  if (groups.front().masks != nullptr)
    return with_child_dim(groups.front().shape,
                          [&](auto dim) HWY_ATTR { make_sparse_votes<dim()>(groups); });
  for (const ChildGroup& group : groups)
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
      store_register(fma_folded(c, load(group.votes + x * kLanes), sum_before(group, sum)), sum);
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

void make_votes(std::span<const ChildGroup> groups) {
  REMCAPS_DISPATCH(make_votes_any)(groups);
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
