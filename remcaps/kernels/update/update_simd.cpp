#include <algorithm>

#include "remcaps/kernels/update/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/update/update_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// update_parameter() of formulas.h, with one parameter per lane.
HWY_INLINE void update_lanes(const AdamConstants& adam, const StepNumbers& step, const float* g_at,
                             float* p_at, float* m_at, float* v_at) {
  const F g = load(g_at);
  const F insensitivity = max(sub(set(1.0F), max(g, sub(zero(), g))), zero());
  F p = load(p_at);
  p = sub(p, mul(set(step.lambda), mul(insensitivity, p)));
  const F m = fma(set(adam.beta1), load(m_at), mul(set(adam.one_minus_beta1), g));
  const F v = fma(set(adam.beta2), load(v_at), mul(set(adam.one_minus_beta2), mul(g, g)));
  const F root = fma(sqrt(v), set(1.0F / step.second_correction), set(adam.epsilon));
  p = sub(p, mul(set(step.step_size), div(m, root)));
  store(p, p_at);
  store(m, m_at);
  store(v, v_at);
}

void update_range_of(const UpdateArrays& arrays, int64_t begin, int64_t end,
                     const AdamConstants& adam, const StepNumbers& step) {
  int64_t x = begin;
  for (; x + kLanes <= end; x += kLanes)
    update_lanes(adam, step, arrays.gradient + x, arrays.parameter + x, arrays.first + x,
                 arrays.second + x);
  if (x == end) return;
  alignas(64) float g[kLanes] = {}, p[kLanes] = {}, m[kLanes] = {}, v[kLanes] = {};
  const int64_t rest = end - x;
  std::copy_n(arrays.gradient + x, rest, g);
  std::copy_n(arrays.parameter + x, rest, p);
  std::copy_n(arrays.first + x, rest, m);
  std::copy_n(arrays.second + x, rest, v);
  update_lanes(adam, step, g, p, m, v);
  std::copy_n(p, rest, arrays.parameter + x);
  std::copy_n(m, rest, arrays.first + x);
  std::copy_n(v, rest, arrays.second + x);
}

// The compiler vectorizes this loop by itself.
void mask_range_of(const uint8_t* dead, int64_t begin, int64_t end, float* parameter) {
  for (int64_t x = begin; x < end; ++x) parameter[x] = dead[x] != 0 ? 0.0F : parameter[x];
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(mask_range_of);
HWY_EXPORT(update_range_of);
#endif

void update_range(const UpdateArrays& arrays, int64_t begin, int64_t end, const AdamConstants& adam,
                  const StepNumbers& step) {
  REMCAPS_DISPATCH(update_range_of)(arrays, begin, end, adam, step);
}

void mask_range(const uint8_t* dead, int64_t begin, int64_t end, float* parameter) {
  REMCAPS_DISPATCH(mask_range_of)(dead, begin, end, parameter);
}

}  // namespace remcaps::kernels::simd
#endif
