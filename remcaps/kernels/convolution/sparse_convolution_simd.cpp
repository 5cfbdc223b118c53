#include "remcaps/kernels/convolution/sparse_convolution.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/convolution/sparse_convolution_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::kSparseMargin;
using simd::SparseRows;

static_assert(kSparseMargin % kRegisterLanes == 0);

// Sums that fit into AVX2's 16 registers together with a weight and a row.
constexpr int kMostSums = 12;

// The sum of a multiply-add can be used again only about four cycles later. With few sums the units
// would wait for them, so every other weight gets sums of its own.
constexpr int chains_of(int sums) {
  return sums <= 4 ? 2 : 1;
}

template <int kSums>
void add_registers(const SparseRows& s, int64_t from) {
  constexpr int kChains = chains_of(kSums);
  const float* map = s.map + from;
  for (int64_t f = 0; f < s.filters; ++f) {
    float* row = s.sums + f * s.row + from;
    Register sums[kChains][kSums];
    for (int v = 0; v < kSums; ++v) {
      sums[0][v] = load_register(row + v * kRegisterLanes);
      for (int chain = 1; chain < kChains; ++chain) sums[chain][v] = set_register(0.0F);
    }
    const auto add = [&](int64_t n, Register* to) HWY_ATTR {
      const Register weight = set_register(s.weights[n]);
      const float* pixels = map + s.starts[s.places[n]];
      for (int v = 0; v < kSums; ++v)
        to[v] = fma(weight, load_register(pixels + v * kRegisterLanes), to[v]);
    };
    int64_t n = s.begins[f];
    const int64_t end = s.begins[f + 1];
    for (; n + kChains <= end; n += kChains)
      for (int chain = 0; chain < kChains; ++chain) add(n + chain, sums[chain]);
    if (n < end) add(n, sums[0]);
    for (int v = 0; v < kSums; ++v) {
      for (int chain = 1; chain < kChains; ++chain)
        sums[0][v] = add_register(sums[0][v], sums[chain][v]);
      store_register(sums[0][v], row + v * kRegisterLanes);
    }
  }
}

// add_registers() with 1 to kMostSums registers.
template <int... kBelow>
void add_so_many(const SparseRows& s, int64_t from, int64_t registers,
                 std::integer_sequence<int, kBelow...>) {
  ((registers == kBelow + 1 ? add_registers<kBelow + 1>(s, from) : void()), ...);
}

// Cuts the row into pieces of about the same size.
void add_pieces(const SparseRows& s) {
  const int64_t registers = (s.length + kRegisterLanes - 1) / kRegisterLanes;
  const int64_t pieces = (registers + kMostSums - 1) / kMostSums;
  for (int64_t piece = 0, done = 0; piece < pieces; ++piece) {
    const int64_t size = (registers - done + pieces - piece - 1) / (pieces - piece);
    add_so_many(s, done * kRegisterLanes, size, std::make_integer_sequence<int, kMostSums>());
    done += size;
  }
}

template <bool kRelu>
void copy_rows(const SparseRows& s, float* out) {
  const Register zero = set_register(0.0F);
  for (int64_t f = 0; f < s.filters; ++f, out += s.length) {
    const float* row = s.sums + f * s.row;
    int64_t x = 0;
    for (; x + kRegisterLanes <= s.length; x += kRegisterLanes) {
      const Register sums = load_register(row + x);
      store_register(kRelu ? max(sums, zero) : sums, out + x);
    }
    for (; x < s.length; ++x) out[x] = kRelu && row[x] < 0 ? 0.0F : row[x];
  }
}

void copy_any(const SparseRows& s, bool relu, float* out) {
  return relu ? copy_rows<true>(s, out) : copy_rows<false>(s, out);
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(add_pieces);
HWY_EXPORT(copy_any);
#endif

void add_sparse_rows(const SparseRows& rows) {
  REMCAPS_DISPATCH(add_pieces)(rows);
}

void copy_sums(const SparseRows& rows, bool relu, float* out) {
  REMCAPS_DISPATCH(copy_any)(rows, relu, out);
}

}  // namespace remcaps::kernels::simd
#endif
