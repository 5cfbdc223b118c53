#include "remcaps/kernels/convolution/tile_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/convolution/tile_product_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

// With 6 rows of two vectors there are 12 sums (24 registers of AVX-512's 32); a step loads two
// vectors of b and broadcasts one number of a per row, so the multiply-add units set the pace.
template <int kRows>
void multiply_rows(const Tile& t) {
  F left[kRows], right[kRows];
  const float* a[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float* c = t.c + r * t.c_row;
    left[r] = t.add ? load(c) : zero();
    right[r] = t.add ? load(c + kLanes) : zero();
    a[r] = t.a + r * t.a_row;
  }
  const float* b = t.b;
  for (int64_t k = 0, at = 0; k < t.depth; ++k, at += t.a_step, b += t.b_row) {
    const F b_left = load(b), b_right = load(b + kLanes);
    for (int r = 0; r < kRows; ++r) {
      const F factor = set(a[r][at]);
      left[r] = fma(factor, b_left, left[r]);
      right[r] = fma(factor, b_right, right[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(left[r], t.c + r * t.c_row);
    store(right[r], t.c + r * t.c_row + kLanes);
  }
}

void multiply_any(const Tile& tile) {
  switch (tile.rows) {
    case 1:
      return multiply_rows<1>(tile);
    case 2:
      return multiply_rows<2>(tile);
    case 3:
      return multiply_rows<3>(tile);
    case 4:
      return multiply_rows<4>(tile);
    case 5:
      return multiply_rows<5>(tile);
    default:
      return multiply_rows<kTileRows>(tile);
  }
}

int64_t tile_width_of() {
  return 2 * kLanes;
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(tile_width_of);
HWY_EXPORT(multiply_any);
#endif

int64_t tile_width() {
  return REMCAPS_DISPATCH(tile_width_of)();
}

void multiply_tile(const Tile& tile) {
  REMCAPS_DISPATCH(multiply_any)(tile);
}

}  // namespace remcaps::kernels
#endif
