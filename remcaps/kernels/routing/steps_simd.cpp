#include "remcaps/kernels/routing/steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/routing/steps_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::SquashStep;

// v = f(n2) s with f(n2) = n2 / ((1 + n2) sqrt(n2 + epsilon)) and n2 = ||s||^2.
HWY_INLINE void squash_parent(int64_t parent_dim, const float* sums, float epsilon, float* poses) {
  F n2 = zero();
  for (int64_t d = 0; d < parent_dim; ++d) {
    const F s = load(sums + d * kLanes);
    n2 = fma(s, s, n2);
  }
  const F factor = div(n2, mul(add(set(1.0F), n2), sqrt(add(n2, set(epsilon)))));
  for (int64_t d = 0; d < parent_dim; ++d)
    store(mul(factor, load(sums + d * kLanes)), poses + d * kLanes);
}

void squash_group_of(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                     float* poses) {
  for (int64_t j = 0; j < parents; ++j) {
    const int64_t at = j * parent_dim * kLanes;
    squash_parent(parent_dim, sums + at, epsilon, poses + at);
  }
}

void squash_sums_of(const SquashStep& step) {
  for (int64_t j = 0; j < step.parents; ++j) {
    for (int64_t x = j * step.parent_dim; x < (j + 1) * step.parent_dim; ++x) {
      F sum = zero();
      for (int64_t chunk = 0; chunk < step.chunks; ++chunk)
        sum = add(sum, load(step.partial + chunk * step.stride + x * kLanes));
      sum = mul(sum, set(step.scale));
      if (step.bias != nullptr) sum = add(sum, set(step.bias[x]));
      store(sum, step.sums + x * kLanes);
    }
  }
  squash_group_of(step.parents, step.parent_dim, step.sums, step.epsilon, step.poses);
}

int64_t lane_count_of() {
  return kLanes;
}

// dL/ds = f dL/dv + 2 f'(n2) (dL/dv . s) s, with
// f'(n2) = 1 / ((1 + n2)^2 sqrt(n2 + eps)) - n2 / (2 (1 + n2) (n2 + eps)^(3/2)).
void squash_gradient_of(int64_t parents, int64_t parent_dim, const float* sums,
                        const float* grad_poses, float epsilon, float* grad_sums) {
  for (int64_t j = 0; j < parents; ++j) {
    const int64_t at = j * parent_dim * kLanes;
    F n2 = zero(), along = zero();
    for (int64_t d = 0; d < parent_dim; ++d) {
      const F s = load(sums + at + d * kLanes);
      n2 = fma(s, s, n2);
      along = fma(s, load(grad_poses + at + d * kLanes), along);
    }
    const F length2 = add(n2, set(epsilon));
    const F root = sqrt(length2);
    const F one_more = add(set(1.0F), n2);
    const F factor = div(n2, mul(one_more, root));
    const F twice_slope = sub(div(set(2.0F), mul(mul(one_more, one_more), root)),
                              div(n2, mul(one_more, mul(length2, root))));
    const F pull = mul(twice_slope, along);
    for (int64_t d = 0; d < parent_dim; ++d) {
      const int64_t x = at + d * kLanes;
      store(fma(factor, load(grad_poses + x), mul(pull, load(sums + x))), grad_sums + x);
    }
  }
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(lane_count_of);
HWY_EXPORT(squash_sums_of);
HWY_EXPORT(squash_group_of);
HWY_EXPORT(squash_gradient_of);
#endif

int64_t lane_count() {
  return REMCAPS_DISPATCH(lane_count_of)();
}

void squash_sums(const SquashStep& step) {
  REMCAPS_DISPATCH(squash_sums_of)(step);
}

void squash_group(int64_t parents, int64_t parent_dim, const float* sums, float epsilon,
                  float* poses) {
  REMCAPS_DISPATCH(squash_group_of)(parents, parent_dim, sums, epsilon, poses);
}

void squash_gradient(int64_t parents, int64_t parent_dim, const float* sums,
                     const float* grad_poses, float epsilon, float* grad_sums) {
  REMCAPS_DISPATCH(squash_gradient_of)(parents, parent_dim, sums, grad_poses, epsilon, grad_sums);
}

}  // namespace remcaps::kernels::simd
#endif
