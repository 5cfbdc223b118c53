// The product inside the bfloat16 convolution: 32 x 32 sums, in AMX tiles or in a plain loop.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// Two neighbouring bfloat16 numbers of a sum, the first in the low half: tiles multiply in pairs.
using Pair = uint32_t;

constexpr int64_t kTileSide = 16;        ///< rows of a tile, and floats or pairs in a row
constexpr int64_t kTileDepth = 32;       ///< numbers of a sum that one step takes
constexpr int64_t kBlockSide = 32;       ///< sums are made in blocks of 2 x 2 tiles
constexpr int64_t kStepPairs = 32 * 16;  ///< of a block's rows, or of its columns, in a step
constexpr int64_t kBlockFloats = 32 * 32;

/// What multiplies. A thread calls begin() before its first product and end() after its last.
/// Numbers are rounded to the nearest bfloat16, ties to even.
struct TileUnit {
  void (*begin)();
  void (*end)();

  /// steps * 32 floats as a row of a block's first factor.
  void (*round_row)(const float* from, int64_t steps, Pair* to);

  /// 16 pairs of the second factor, which lie together: of first[i * distance] and second[i *
  /// distance] for i < count, of zeros behind. What is null is zero.
  void (*round_pairs)(const float* first, const float* second, int64_t distance, int64_t count,
                      Pair* to);

  /// c [32 rows, 32 columns] = (add ? c : 0) + the products of
  ///   a   [steps, 32 rows, 16 pairs]
  ///   b   [steps, 2 tiles, 16 pairs, 16 columns]
  void (*multiply)(const Pair* a, const Pair* b, int64_t steps, bool add, float* c);
};

/// Where the CPU has AMX and the compiler knew it; null elsewhere.
const TileUnit* amx_tiles();

/// The same layouts in a plain loop: to test them with on any CPU, too slow for more.
const TileUnit& plain_tiles();

}  // namespace remcaps::kernels
