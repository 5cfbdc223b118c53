// Pictures as bytes: bilinear resizing bit for bit as PIL's Image.resize(..., BILINEAR), and the
// step from pixels to planes.
#pragma once

#include <cstdint>
#include <vector>

namespace remcaps::kernels {

/// Bits of a weight, so that a sum of weighted bytes fits 32 bits.
constexpr int kResizeBits = 32 - 8 - 2;
constexpr int32_t kResizeHalf = 1 << (kResizeBits - 1);

/// What every output position reads: `count` source positions from `first` on, and their weights.
/// Where a position has fewer, the weights of the others are 0.
struct ResizeTaps {
  int64_t count = 0;            ///< K
  std::vector<int64_t> first;   ///< [out]
  std::vector<int32_t> weight;  ///< [K, out], 2^kResizeBits is one
};
/// With `antialias` the filter widens when it shrinks a line; without, it reads two neighbours.
ResizeTaps make_resize_taps(int64_t in, int64_t out, bool antialias = true);

namespace cpu {

/// from [C, from_height, from_width] -> to [C, height, width], on the calling thread alone: columns
/// first, then rows, each pass rounded to bytes.
void resize_picture(const uint8_t* from, int64_t channels, int64_t from_height, int64_t from_width,
                    int64_t height, int64_t width, uint8_t* to, bool antialias = true);

/// pixels [count, channels] -> planes [wanted, count]; both are 1 or 3. Colour becomes grey as in
/// ITU-R 601, grey is repeated.
void split_planes(const uint8_t* pixels, int64_t count, int64_t channels, int64_t wanted,
                  uint8_t* planes);

}  // namespace cpu
}  // namespace remcaps::kernels
