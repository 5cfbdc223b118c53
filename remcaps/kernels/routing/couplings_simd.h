// From logits to couplings: what both algorithms of the SIMD routing share. Included once per
// target, as lanes-inl.h is.
#if defined(REMCAPS_KERNELS_COUPLINGS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_COUPLINGS_INL_H_
#undef REMCAPS_KERNELS_COUPLINGS_INL_H_
#else
#define REMCAPS_KERNELS_COUPLINGS_INL_H_
#endif

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// The level's value of each coupling.
HWY_INLINE F quantized(F coupling, const CouplingLevels& levels) {
  F value = set(levels.centres[0]);
  for (int64_t k = 1; k < levels.count; ++k)
    value = if_greater(coupling, set(levels.edges[k]), set(levels.centres[k]), value);
  return value;
}

// Turns the logits of one child into its couplings, in place.
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

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#endif  // toggle
