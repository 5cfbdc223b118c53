// The product inside the bfloat16 convolution: 32 x 32 sums, in AMX tiles or in a plain loop.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// Two neighbouring bfloat16 numbers of a sum, the first in the low half. Tiles multiply pairs.
using Pair = uint32_t;

constexpr int64_t kTileSide = 16;        ///< rows of a tile, and floats or pairs in a row
constexpr int64_t kTileDepth = 32;       ///< numbers of a sum that one step takes
constexpr int64_t kBlockSide = 32;       ///< sums are made in blocks of 2 x 2 tiles
constexpr int64_t kStepPairs = 32 * 16;  ///< pairs of a block's rows, or columns, in one step
constexpr int64_t kBlockFloats = 32 * 32;

/// An implementation of the product. A thread calls begin() before its first product and end()
/// after its last. Numbers are rounded to the nearest bfloat16, ties to even.
struct TileUnit {
  void (*begin)();
  void (*end)();

  /// Rounds steps * 32 floats into one row of the first factor of a block.
  void (*round_row)(const float* from, int64_t steps, Pair* to);

  /// Rounds 16 neighbouring pairs of the second factor: (first[i * distance], second[i * distance])
  /// for i < count, then zeros. A null pointer stands for zeros.
  void (*round_pairs)(const float* first, const float* second, int64_t distance, int64_t count,
                      Pair* to);

  /// c [32 rows, 32 columns] = (add ? c : 0) + the products of
  ///   a   [steps, 32 rows, 16 pairs]
  ///   b   [steps, 2 tiles, 16 pairs, 16 columns]
  void (*multiply)(const Pair* a, const Pair* b, int64_t steps, bool add, float* c);
};

/// The AMX tiles; null if the CPU has none, or if the compiler did not know them.
const TileUnit* amx_tiles();

/// The same layouts in a plain loop. Slow: only for tests of the loops around it on any CPU.
const TileUnit& plain_tiles();

}  // namespace remcaps::kernels
