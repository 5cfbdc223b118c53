// Convolutions with weights and inputs of 8 bits, on CPUs that multiply bytes (AVX512-VNNI). Sums are
// exact 32-bit integers: the vector loop and its plain twin give the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/pointwise/maps.h"

namespace remcaps::kernels {

/// Inputs of a product of bytes that are summed at once, and sums side by side in a register.
constexpr int64_t kByteQuad = 4, kByteLanes = 16;
/// Filters in a panel: two registers of sums.
constexpr int64_t kBytePanel = 2 * kByteLanes;
constexpr int64_t kByteRows = 6;  ///< places whose sums stay in registers

/// sums[r][x] += sum_k a[r * a_row + k] * b, for r < rows and x < kBytePanel.
///   a   unsigned, `quads` * 4 neighbouring bytes of each row
///   b   signed, [quads, kBytePanel, 4]
struct ByteTile {
  const uint8_t* a = nullptr;
  int64_t a_row = 0;
  const int8_t* b = nullptr;
  int64_t quads = 0;
  int32_t* sums = nullptr;  ///< row r begins at r * sums_row
  int64_t sums_row = 0, rows = 0;
};
using ByteProduct = void (*)(const ByteTile& tile);

/// Null if the CPU cannot multiply bytes, or if the compiler did not know the instruction.
ByteProduct byte_product();
/// The same in a plain loop, for tests on any CPU.
ByteProduct plain_byte_product();

namespace cpu {

/// Filters [F, C, kh, kw] of 8 bits, as panels [F / 32, kh, kw * C / 4, 32, 4]: channels are filled up
/// to a multiple of 4, filters to one of 32.
class ByteFilters {
 public:
  /// A weight is weight * scales[f]. The size of the map does not matter.
  ByteFilters(const ConvolutionShape& shape, const std::vector<int8_t>& weight,
              std::vector<float> scales);

  int64_t channels() const { return channels_; }
  int64_t panels() const { return panels_; }
  int64_t filters() const { return static_cast<int64_t>(scales_.size()); }
  const int8_t* at(int64_t panel, int64_t ky) const {
    return bytes_.data() + (panel * kernel_height_ + ky) * row_quads_ * kBytePanel * kByteQuad;
  }
  /// Quads in a row of the kernel.
  int64_t row_quads() const { return row_quads_; }
  float scale(int64_t filter) const { return scales_[static_cast<size_t>(filter)]; }
  /// The sum of a filter's bytes.
  int32_t sum(int64_t filter) const { return sums_[static_cast<size_t>(filter)]; }

 private:
  int64_t channels_, panels_, kernel_height_, row_quads_;
  std::vector<int8_t> bytes_;
  std::vector<float> scales_;
  std::vector<int32_t> sums_;
};

/// map [B, C, H, W] in any layout, bias [F] or null -> out [B, oh, ow, F]. Each image is rounded to 256
/// values of its own: multiples of its largest value / 255, or, if it has negative values, of the
/// largest magnitude / 127. The result of an image depends neither on the other images nor on the
/// number of threads.
void byte_convolution(const ConvolutionShape& shape, const MapView& map, const ByteFilters& filters,
                      const float* bias, bool relu, ByteProduct product, float* out);

}  // namespace cpu
}  // namespace remcaps::kernels
