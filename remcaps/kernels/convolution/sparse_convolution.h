// Convolutions of pruned networks on the CPU: work only for the weights that are left.
//
// The rows and columns of a map are sorted by their remainders modulo the strides. The pixels that a
// weight meets then lie close together, for all places of the result. One weight is a multiply-add
// of a few vectors of floats, and the sums of all places stay in registers: three AVX-512 vectors
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

  static constexpr int64_t kBlock = 16;  ///< channels in a block
  /// Places that a window may have.
  static constexpr int64_t kMostTaps = 65535 / kBlock;

  int64_t filters() const { return filters_; }
  int64_t channels() const { return channels_; }
  int64_t kernel_height() const { return kernel_height_; }
  int64_t kernel_width() const { return kernel_width_; }
  /// Share of the weights that are left.
  double density() const;

  /// The weights that are left, in runs: those of one filter in one block of channels, filled up
  /// with zeros to a multiple of kTogether. In a block the first kSorted filters come first, then the
  /// next, and of these the one with the longest run.
  static constexpr int64_t kTogether = 4, kSorted = 32;
  const std::vector<float>& values() const { return values_; }
  /// Where each of them is in its window: (channel in its block * kh + row) * kw + column.
  const std::vector<uint16_t>& places() const { return places_; }
  /// Where each run of each block begins, [blocks, filters]; then where the last one ends.
  const std::vector<int64_t>& begins() const { return begins_; }
  /// The filter of each run.
  const std::vector<uint32_t>& run_filters() const { return run_filters_; }

 private:
  struct Nonzeros;
  SparseWeights(const ConvolutionShape& shape, const Nonzeros& left);

  int64_t filters_, channels_, kernel_height_, kernel_width_;
  size_t left_;
  std::vector<float> values_;
  std::vector<uint16_t> places_;
  std::vector<int64_t> begins_;
  std::vector<uint32_t> run_filters_;
};

/// Where in a block of a laid-out map the pixels of each weight begin.
struct SparseStarts {
  std::vector<uint16_t> narrow;  ///< empty if the block is larger, or the CPU has few lanes: then
  std::vector<uint32_t> wide;
};

/// The channels are cut into parts of so many, which are summed on their own.
int64_t sparse_part_channels(int64_t channels);

SparseStarts sparse_starts(const ConvolutionShape& shape, const SparseWeights& weights);

/// map in any layout, bias [F] or null -> out [B, F, oh, ow]; `relu`: its positive part. `starts`
/// are sparse_starts(); the shape's batch does not matter to them.
void sparse_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                        const SparseWeights& weights, const SparseStarts& starts, const float* bias,
                        bool relu, float* out);

}  // namespace remcaps::kernels::cpu

// The loops over one block of channels of an image.
namespace remcaps::kernels::simd {

/// Floats of the widest vector there is.
constexpr int64_t kSparseMargin = 16;

/// Floats of a vector of this CPU.
int64_t sparse_lanes();
/// With fewer lanes nothing is gained by narrow starts.
constexpr int64_t kNarrowLanes = 8;

/// Sums of so few places are added in another order than those of larger results.
constexpr int64_t kMostChained = 32;

/// How a channel of the map is laid out: [columns, phases, lines, pitch].
///
/// A vector takes as many short rows as it can: two of DR-CapsNet's rows of 6 places, where a line
/// has 10 pixels (`group_rows` > 0). A column is then a remainder modulo the stride. Otherwise it
/// is a column of the window, and a line has only the pixels that its weights meet: all lines are
/// one row of vectors. Pixels between `width` and `pitch` mean nothing.
///
/// Line l of phase p is row l * stride + p of the padded map. A phase is a remainder modulo the
/// stride, or a row of the window if there are only few windows (`unfolded`): all vectors are whole
/// cache lines then.
struct SparseLayout {
  SparseLayout(const ConvolutionShape& shape, const MapStrides& map_strides);

  ConvolutionShape shape;
  MapStrides strides;
  int64_t out_height, out_width;
  int64_t split_width;  ///< pixels of a row whose columns have one remainder modulo the stride
  int64_t phases, lines;
  int64_t group_rows;  ///< rows of the result that share kSparseMargin floats; 0: see above
  int64_t columns, width, pitch;
  bool unfolded;
  int64_t phase_floats;

  int64_t channel_floats() const { return columns * phases * phase_floats; }
  /// Whether the rows of the result lie together among its sums.
  bool rows_are_one() const { return group_rows == 0 && pitch == out_width; }
  /// Where the pixels of a weight in row y and column x of the window begin.
  int64_t start(int64_t y, int64_t x) const;
  /// Floats of a filter's sums, a multiple of sparse_lanes().
  int64_t row_floats() const;
  /// Where row y of the result begins among them.
  int64_t sums_of_row(int64_t y) const {
    return group_rows == 0 ? y * pitch : y / group_rows * kSparseMargin + y % group_rows * pitch;
  }
};

/// Lays channels of an image out, one behind the other, and a margin of zeros behind them.
/// `scratch` has room for [stride_x, H, split_width] and a margin.
void lay_out_channels(const SparseLayout& layout, const float* channels, int64_t count,
                      float* scratch, float* out);

/// Rows of a map, each times one weight, summed in registers. For each run r < runs, with n from
/// begins[r] to begins[r + 1] - 1, and f = filters[r]:
///   sums[f * row + x] += sum_n weights[n] * map[starts[n] + x]
/// `fresh` sums are set to that, plus bias[f] if there is a bias. If there is a `group_step`, every
/// kSparseMargin floats of sums begin so many floats further on in the map.
struct SparseRows {
  int64_t runs = 0;
  const uint32_t* filters = nullptr;
  const int64_t* begins = nullptr;  ///< multiples of SparseWeights::kTogether
  const float* weights = nullptr;
  const uint16_t* narrow_starts = nullptr;  ///< null: they are wide
  const uint32_t* wide_starts = nullptr;
  const float* map = nullptr;
  int64_t group_step = 0;
  float* sums = nullptr;
  int64_t row = 0;  ///< floats of a filter's sums, a multiple of sparse_lanes()
  bool fresh = false;
  const float* bias = nullptr;
  bool relu = false;  ///< only the positive part of the sums is stored
};

void add_sparse_rows(const SparseRows& rows);

/// sums[x] += from[x] for x < count, a multiple of sparse_lanes().
void add_sums(const float* from, int64_t count, float* sums);

/// Copies sums [filters, row] to out [filters, oh, ow]. `relu`: only their positive part.
void copy_sums(const SparseLayout& layout, int64_t filters, const float* sums, int64_t row,
               bool relu, float* out);

}  // namespace remcaps::kernels::simd
