// F, a vector of kLanes floats, and the few operations that the CPU kernels need. A "lane" is one
// element of such a vector. With Highway there is one copy of this code per instruction set, and
// the best one is chosen at run time. Without Highway the compiler's own 16-byte vectors are used.
//
// Include it after for_each_target.h. It is read once per instruction set: the toggle below stands
// in for an include guard.
#if defined(REMCAPS_KERNELS_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REMCAPS_KERNELS_LANES_H_
#undef REMCAPS_KERNELS_LANES_H_
#else
#define REMCAPS_KERNELS_LANES_H_
#endif

#include <cmath>
#include <cstdint>

#ifdef REMCAPS_HIGHWAY

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#define REMCAPS_LANES HWY_NAMESPACE
#define REMCAPS_DISPATCH(function) HWY_DYNAMIC_DISPATCH(function)

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Register = hn::Vec<Floats>;

// Registers per F. Every weight is loaded and broadcast. With two registers a load feeds two
// multiply-adds, so that the multiply-add units and not the load ports limit the speed. Instruction
// sets with only 16 registers use one: a child's pose would not fit beside the sums otherwise.
#if HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2
constexpr int kRegisters = 1;
#else
constexpr int kRegisters = 2;
#endif
constexpr int64_t kRegisterLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
constexpr int64_t kLanes = kRegisters * kRegisterLanes;

struct F {
  Register part[kRegisters];
};

HWY_INLINE F load(const float* p) {
  F x;
  for (int i = 0; i < kRegisters; ++i) x.part[i] = hn::Load(Floats(), p + i * kRegisterLanes);
  return x;
}
HWY_INLINE void store(F x, float* p) {
  for (int i = 0; i < kRegisters; ++i) hn::Store(x.part[i], Floats(), p + i * kRegisterLanes);
}
HWY_INLINE F set(float value) {
  F x;
  x.part[0] = hn::Set(Floats(), value);
  for (int i = 1; i < kRegisters; ++i) x.part[i] = x.part[0];
  return x;
}
HWY_INLINE F zero() {
  return set(0.0F);
}
HWY_INLINE F add(F a, F b) {
  for (int i = 0; i < kRegisters; ++i) a.part[i] = hn::Add(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE F sub(F a, F b) {
  for (int i = 0; i < kRegisters; ++i) a.part[i] = hn::Sub(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE F mul(F a, F b) {
  for (int i = 0; i < kRegisters; ++i) a.part[i] = hn::Mul(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE F div(F a, F b) {
  for (int i = 0; i < kRegisters; ++i) a.part[i] = hn::Div(a.part[i], b.part[i]);
  return a;
}
/// a * b + c
HWY_INLINE F fma(F a, F b, F c) {
  for (int i = 0; i < kRegisters; ++i) c.part[i] = hn::MulAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
HWY_INLINE F max(F a, F b) {
  for (int i = 0; i < kRegisters; ++i) a.part[i] = hn::Max(a.part[i], b.part[i]);
  return a;
}
HWY_INLINE F sqrt(F x) {
  for (int i = 0; i < kRegisters; ++i) x.part[i] = hn::Sqrt(x.part[i]);
  return x;
}
HWY_INLINE F exp(F x) {
  for (int i = 0; i < kRegisters; ++i) x.part[i] = hn::Exp(Floats(), x.part[i]);
  return x;
}
/// x > bound ? yes : no
HWY_INLINE F if_greater(F x, F bound, F yes, F no) {
  for (int i = 0; i < kRegisters; ++i)
    no.part[i] = hn::IfThenElse(hn::Gt(x.part[i], bound.part[i]), yes.part[i], no.part[i]);
  return no;
}
// One register alone; p need not be aligned.
HWY_INLINE Register load_register(const float* p) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE void store_register(Register x, float* p) {
  hn::StoreU(x, Floats(), p);
}
HWY_INLINE Register set_register(float value) {
  return hn::Set(Floats(), value);
}
/// p[0], p[2], p[4], ...
HWY_INLINE Register even_lanes(const float* p) {
#if HWY_TARGET == HWY_SCALAR
  return load_register(p);
#else
  return hn::ConcatEven(Floats(), load_register(p + kRegisterLanes), load_register(p));
#endif
}
HWY_INLINE Register add_register(Register a, Register b) {
  return hn::Add(a, b);
}
/// Four floats with one load; get(): one of them in all lanes.
class FourFloats {
 public:
#if HWY_TARGET == HWY_SCALAR
  HWY_INLINE explicit FourFloats(const float* p) : floats_(p) {}
  template <int kNumber>
  HWY_INLINE Register get() const {
    return set_register(floats_[kNumber]);
  }

 private:
  const float* floats_;
#else
  HWY_INLINE explicit FourFloats(const float* p) : floats_(hn::LoadDup128(Floats(), p)) {}
  template <int kNumber>
  HWY_INLINE Register get() const {
    return hn::Broadcast<kNumber>(floats_);
  }

 private:
  Register floats_;
#endif
};
HWY_INLINE Register fma(Register a, Register b, Register c) {
  return hn::MulAdd(a, b, c);
}
HWY_INLINE Register max(Register a, Register b) {
  return hn::Max(a, b);
}

/// The sum of an F's registers.
HWY_INLINE Register folded(F x) {
  for (int i = 1; i < kRegisters; ++i) x.part[0] = hn::Add(x.part[0], x.part[i]);
  return x.part[0];
}
/// folded(a * b) + c
HWY_INLINE Register fma_folded(F a, F b, Register c) {
  for (int i = 0; i < kRegisters; ++i) c = hn::MulAdd(a.part[i], b.part[i], c);
  return c;
}
HWY_INLINE float sum_of_lanes(Register x) {
  return hn::GetLane(hn::SumOfLanes(Floats(), x));
}
HWY_INLINE float sum_of_lanes(F x) {
  return sum_of_lanes(folded(x));
}

/// out[0..3] = the sums of the lanes of a, b, c and d. Takes half the shuffles of four single sums.
HWY_INLINE void store_four_sums(Register a, Register b, Register c, Register d, float* out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = sum_of_lanes(a), out[1] = sum_of_lanes(b), out[2] = sum_of_lanes(c);
  out[3] = sum_of_lanes(d);
#else
  const Floats tag;
  const hn::RepartitionToWide<Floats> pairs;
  // Within each block of four lanes: {a02, b02, a13, b13}, then {a, b, c, d}.
  const Register ab = hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
  const Register cd = hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d));
  const auto ab2 = hn::BitCast(pairs, ab), cd2 = hn::BitCast(pairs, cd);
  const Register blocks = hn::Add(hn::BitCast(tag, hn::InterleaveLower(pairs, ab2, cd2)),
                                  hn::BitCast(tag, hn::InterleaveUpper(pairs, ab2, cd2)));
  if constexpr (kRegisterLanes == 16) {
    const hn::Half<Floats> half;
    const hn::Half<decltype(half)> quarter;
    const auto h = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
    hn::StoreU(hn::Add(hn::LowerHalf(quarter, h), hn::UpperHalf(quarter, h)), quarter, out);
  } else if constexpr (kRegisterLanes == 8) {
    const hn::Half<Floats> half;
    hn::StoreU(hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks)), half, out);
  } else {
    hn::StoreU(blocks, tag, out);
  }
#endif
}
HWY_INLINE void store_four_sums(F a, F b, F c, F d, float* out) {
  store_four_sums(folded(a), folded(b), folded(c), folded(d), out);
}

}  // namespace remcaps::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#else  // no Highway

#define REMCAPS_LANES plain
#define REMCAPS_DISPATCH(function) plain::function
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_INLINE inline
#define HWY_ATTR

namespace remcaps::kernels::plain {

using F = float __attribute__((vector_size(16)));
using Register = F;
constexpr int64_t kLanes = 4, kRegisterLanes = 4;

inline F load(const float* p) {
  return *reinterpret_cast<const F*>(p);
}
inline void store(F x, float* p) {
  *reinterpret_cast<F*>(p) = x;
}
inline F set(float x) {
  return F{x, x, x, x};
}
inline F zero() {
  return F{};
}
inline F add(F a, F b) {
  return a + b;
}
inline F sub(F a, F b) {
  return a - b;
}
inline F mul(F a, F b) {
  return a * b;
}
inline F div(F a, F b) {
  return a / b;
}
inline F fma(F a, F b, F c) {
  return a * b + c;
}
inline Register load_register(const float* p) {
  return F{p[0], p[1], p[2], p[3]};
}
inline void store_register(Register x, float* p) {
  for (int i = 0; i < 4; ++i) p[i] = x[i];
}
inline Register set_register(float x) {
  return set(x);
}
inline Register even_lanes(const float* p) {
  return F{p[0], p[2], p[4], p[6]};
}
inline Register add_register(Register a, Register b) {
  return a + b;
}
class FourFloats {
 public:
  explicit FourFloats(const float* p) : floats_(load_register(p)) {}
  template <int kNumber>
  Register get() const {
    return set(floats_[kNumber]);
  }

 private:
  Register floats_;
};
inline F max(F a, F b) {
  return a > b ? a : b;
}
inline F sqrt(F x) {
  return F{std::sqrt(x[0]), std::sqrt(x[1]), std::sqrt(x[2]), std::sqrt(x[3])};
}
inline F exp(F x) {
  return F{std::exp(x[0]), std::exp(x[1]), std::exp(x[2]), std::exp(x[3])};
}
inline F if_greater(F x, F bound, F yes, F no) {
  return x > bound ? yes : no;
}
inline Register folded(F x) {
  return x;
}
inline Register fma_folded(F a, F b, Register c) {
  return fma(a, b, c);
}
inline float sum_of_lanes(F x) {
  return (x[0] + x[1]) + (x[2] + x[3]);
}
inline void store_four_sums(F a, F b, F c, F d, float* out) {
  out[0] = sum_of_lanes(a), out[1] = sum_of_lanes(b), out[2] = sum_of_lanes(c);
  out[3] = sum_of_lanes(d);
}

}  // namespace remcaps::kernels::plain

#endif  // REMCAPS_HIGHWAY
#endif  // toggle
