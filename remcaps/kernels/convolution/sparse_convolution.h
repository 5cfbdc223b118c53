// Convolutions of pruned networks on the CPU: work only for the weights that are left.
//
// For each column of the window, and for each row of the window below the stride, the pixels that
// such a weight meets are copied side by side, for all places of the result. One weight is then one
// multiply-add of a row of floats. The sums of all places stay in registers: three AVX-512 vectors
// for the 6x6 places of DR-CapsNet's primary layer. Channels are laid out in blocks of
// SparseWeights::kBlock, which stay in the first-level cache while all filters pass over them.
//
// The channels are cut into parts that are summed on their own, so that threads can share an image.
// The result of an image depends neither on the other images nor on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remcaps/kernels/convolution/shape.h"

namespace remcaps::kernels::cpu {

/// The weights of a convolution that are not zero.
class SparseWeights {
 public:
  /// Copies what is left of weight [F, C, kh, kw]. The size of the map does not matter.
  SparseWeights(const ConvolutionShape& shape, const float* weight);
  /// The same, given what is left and its places in row-major order, ascending.
  SparseWeights(const ConvolutionShape& shape, std::span<const uint32_t> places,
                std::span<const float> values);

  static constexpr int64_t kBlock = 8;  ///< channels in a block

  int64_t filters() const { return filters_; }
  int64_t channels() const { return channels_; }
  int64_t kernel_height() const { return kernel_height_; }
  int64_t kernel_width() const { return kernel_width_; }
  /// Share of the weights that are left.
  double density() const;

  /// The weights that are left, ordered by block of channels, then by filter.
  const std::vector<float>& values() const { return values_; }
  /// Where each of them is in its window: (channel in its block * kh + row) * kw + column.
  const std::vector<uint16_t>& places() const { return places_; }
  /// Where each filter of each block begins, [blocks, filters]; then where the last one ends.
  const std::vector<int64_t>& begins() const { return begins_; }

 private:
  struct Nonzeros;
  SparseWeights(const ConvolutionShape& shape, const Nonzeros& left);

  int64_t filters_, channels_, kernel_height_, kernel_width_;
  std::vector<float> values_;
  std::vector<uint16_t> places_;
  std::vector<int64_t> begins_;
};

/// map in any layout, bias [F] or null -> out [B, F, oh, ow]; `relu`: its positive part.
void sparse_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                        const SparseWeights& weights, const float* bias, bool relu, float* out);

}  // namespace remcaps::kernels::cpu

// The loops over one block of channels of an image.
namespace remcaps::kernels::simd {

/// Floats of the widest vector there is.
constexpr int64_t kSparseMargin = 16;

/// How a channel of the map is laid out: for each column of the window and each row of the window
/// below the stride, the rows of the map that such a weight meets, and of each row the pixels it
/// meets: [kw, phases, lines, pitch]. Pixels between `ow` and `pitch` mean nothing.
struct SparseLayout {
  SparseLayout(const ConvolutionShape& shape, const MapStrides& map_strides);

  ConvolutionShape shape;
  MapStrides strides;
  int64_t out_height, out_width;
  int64_t pitch;  ///< of a row: eight floats, or the width if that takes fewer vectors
  int64_t phases, lines;
  int64_t split_width;  ///< pixels of a row whose columns have one remainder modulo the stride

  int64_t channel_floats() const { return shape.kernel_width * phases * lines * pitch; }
};

/// Lays channels of an image out, one behind the other, and a margin of zeros behind them.
/// `scratch` has room for [stride_x, H, split_width] and a margin.
void lay_out_channels(const SparseLayout& layout, const float* channels, int64_t count,
                      float* scratch, float* out);

/// Rows of a map, each times one weight, summed in registers. For each filter f < filters, with n
/// from begins[f] to begins[f + 1] - 1:
///   sums[f * row + x] += sum_n weights[n] * map[starts[places[n]] + x]
/// `fresh` sums are set to that, plus bias[f] if there is a bias.
struct SparseRows {
  int64_t filters = 0;
  const float* weights = nullptr;
  const uint16_t* places = nullptr;
  const int64_t* begins = nullptr;
  const int32_t* starts = nullptr;
  const float* map = nullptr;
  /// x runs from 0 to length - 1, rounded up to a multiple of kSparseMargin. The map and each row
  /// of sums must be that long.
  int64_t length = 0;
  float* sums = nullptr;
  int64_t row = 0;
  bool fresh = false;
  const float* bias = nullptr;
};

void add_sparse_rows(const SparseRows& rows);

/// sums[x] += from[x] for x < count, a multiple of kSparseMargin.
void add_sums(const float* from, int64_t count, float* sums);

/// Copies sums [filters, row] to out [filters, oh, ow]. `relu`: only their positive part.
void copy_sums(const SparseLayout& layout, int64_t filters, const float* sums, int64_t row,
               bool relu, float* out);

}  // namespace remcaps::kernels::simd
