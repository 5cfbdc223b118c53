#include "remcaps/kernels/convolution/bf16_tiles.h"

#include <bit>

#include "remcaps/base/cpu.h"

// Older compilers lack the instructions; clang, which calls itself GNU 4, is not tried.
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12
#define REMCAPS_AMX
#include <immintrin.h>
#endif

namespace remcaps::kernels {
namespace {

uint32_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return bits >> 16 | 0x40;  // stays a NaN without its low half
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

float first_of(Pair pair) {
  return std::bit_cast<float>(pair << 16);
}

float second_of(Pair pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000U);
}

void plain_round_row(const float* from, int64_t steps, Pair* to) {
  for (int64_t step = 0; step < steps; ++step, to += kStepPairs)
    for (int64_t i = 0; i < kTileSide; ++i, from += 2)
      to[i] = bf16_bits(from[0]) | bf16_bits(from[1]) << 16;
}

void plain_round_pairs(const float* first, const float* second, int64_t distance, int64_t count,
                       Pair* to) {
  for (int64_t i = 0; i < kTileSide; ++i) {
    to[i] = 0;
    if (i < count && first != nullptr) to[i] |= bf16_bits(first[i * distance]);
    if (i < count && second != nullptr) to[i] |= bf16_bits(second[i * distance]) << 16;
  }
}

void plain_multiply(const Pair* a, const Pair* b, int64_t steps, bool add, float* c) {
  for (int64_t row = 0; row < kBlockSide; ++row)
    for (int64_t column = 0; column < kBlockSide; ++column) {
      float sum = add ? c[row * kBlockSide + column] : 0;
      for (int64_t step = 0; step < steps; ++step) {
        const Pair* x = a + step * kStepPairs + row * kTileSide;
        const Pair* y =
            b + step * kStepPairs + column / kTileSide * (kStepPairs / 2) + column % kTileSide;
        for (int64_t i = 0; i < kTileSide; ++i, y += kTileSide)
          sum += first_of(x[i]) * first_of(*y) + second_of(x[i]) * second_of(*y);
      }
      c[row * kBlockSide + column] = sum;
    }
}

#ifdef REMCAPS_AMX

// Palette 1, and all eight tiles with 16 rows of 64 bytes. Static, because g++ believes that
// ldtilecfg reads only eight bytes, and might not write the rest of a local variable.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kTileConfig;

__attribute__((target("amx-tile"))) void amx_begin() {
  _tile_loadconfig(&kTileConfig);
}

// Releases the registers: a thread that holds tiles is slower to switch and to put to sleep.
__attribute__((target("amx-tile"))) void amx_end() {
  _tile_release();
}

#define REMCAPS_BF16_VECTORS __attribute__((target("avx512f,avx512bw,avx512bf16")))

REMCAPS_BF16_VECTORS void amx_round_row(const float* from, int64_t steps, Pair* to) {
  for (int64_t step = 0; step < steps; ++step, from += kTileDepth, to += kStepPairs) {
    const __m512bh numbers =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + kTileSide), _mm512_loadu_ps(from));
    _mm512_storeu_si512(to, reinterpret_cast<__m512i>(numbers));
  }
}

// All lanes. Intrinsics without a mask trigger false warnings of g++ 12.
constexpr __mmask16 kAllLanes = 0xFFFF;

// A bfloat16 in the low half of each word.
REMCAPS_BF16_VECTORS __m512i gather_bf16(const float* from, __m512i index, __mmask16 mask) {
  const __m512 numbers = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, index, from, 4);
  return _mm512_maskz_cvtepu16_epi32(kAllLanes,
                                     reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
}

REMCAPS_BF16_VECTORS void amx_round_pairs(const float* first, const float* second, int64_t distance,
                                          int64_t count, Pair* to) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i index = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(distance)));
  const auto mask = static_cast<__mmask16>((1U << count) - 1);
  const __m512i low = gather_bf16(first, index, first == nullptr ? __mmask16{0} : mask);
  const __m512i high = gather_bf16(second, index, second == nullptr ? __mmask16{0} : mask);
  _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAllLanes, high, 16)));
}

// Four tiles of sums stay in registers. A step loads two tiles of a and two of b for four
// products.
__attribute__((target("amx-tile,amx-bf16"))) void amx_multiply(const Pair* a, const Pair* b,
                                                               int64_t steps, bool add, float* c) {
  constexpr int64_t kHalf = kStepPairs / 2, kRow = kTileSide * sizeof(Pair);
  constexpr int64_t kSumRow = kBlockSide * sizeof(float);
  float* lower = c + kTileSide * kBlockSide;
  if (add) {
    _tile_loadd(0, c, kSumRow);
    _tile_loadd(1, c + kTileSide, kSumRow);
    _tile_loadd(2, lower, kSumRow);
    _tile_loadd(3, lower + kTileSide, kSumRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step, a += kStepPairs, b += kStepPairs) {
    _tile_loadd(4, a, kRow);
    _tile_loadd(6, b, kRow);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kHalf, kRow);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kHalf, kRow);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, kSumRow);
  _tile_stored(1, c + kTileSide, kSumRow);
  _tile_stored(2, lower, kSumRow);
  _tile_stored(3, lower + kTileSide, kSumRow);
}

#endif

}  // namespace

const TileUnit* amx_tiles() {
#ifdef REMCAPS_AMX
  static constexpr TileUnit kAmx = {amx_begin, amx_end, amx_round_row, amx_round_pairs,
                                    amx_multiply};
  return cpu_has_amx() ? &kAmx : nullptr;
#else
  return nullptr;
#endif
}

const TileUnit& plain_tiles() {
  static constexpr TileUnit kPlain = {[] {}, [] {}, plain_round_row, plain_round_pairs,
                                      plain_multiply};
  return kPlain;
}

}  // namespace remcaps::kernels
