// The SIMD loop of the convolutions: a small matrix product whose result stays in registers.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// Rows of a tile that fit into the registers together with the operands.
constexpr int64_t kTileRows = 6;

/// Floats in a row of a tile: two vectors of this CPU (simd/lanes.h).
int64_t tile_width();

/// c[r][x] = (add ? c[r][x] : 0) + sum_k a[r * a_row + k * a_step] * b[k * b_row + x]
/// for r < rows and x < tile_width(). Every row of b and c is aligned to 64 bytes.
struct Tile {
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 1;
  const float* b = nullptr;
  int64_t b_row = 0;
  int64_t depth = 0;  ///< k runs from 0 to depth - 1
  float* c = nullptr;
  int64_t c_row = 0, rows = 0;  ///< at most kTileRows
  bool add = false;
};
void multiply_tile(const Tile& tile);

}  // namespace remcaps::kernels
