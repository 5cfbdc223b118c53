// Convolutions of pruned networks for 16 images at a time, one in each lane of a register (AVX-512).
// sparse_convolution.h puts places of one image into the lanes: rows begin anywhere, so that most
// loads touch two cache lines, and lanes stay idle. Here every load is one whole cache line, and a
// weight is read once for all images.
//
// A map has the layout [C, H, W, 16]. Two channels at a time stay in the first-level cache while all
// filters that read them pass by; the sums of some rows of the result are in the second-level cache.
// Products are added in the order of sparse_convolution(): the results have the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "remcaps/kernels/convolution/sparse_convolution.h"

namespace remcaps::kernels {

namespace simd {

/// The weights with which a filter reads some channels.
struct LaneRun {
  uint32_t filter, begin, end;
};

}  // namespace simd

namespace cpu {

constexpr int64_t kLaneImages = 16;

/// The strides of a map [C, H, W, 16].
MapStrides lane_strides(int64_t height, int64_t width);

/// The weights of a convolution, sorted by channels, for maps of one size.
class LaneWeights {
 public:
  LaneWeights(const ConvolutionShape& shape, const SparseWeights& weights);

  /// Whether this CPU has such lanes and the kernel is for such maps: without padding, in steps of 1
  /// or 2, with results of more than simd::kMostChained places.
  static bool can_be_made(const ConvolutionShape& shape);

  static constexpr int64_t kChannels = 2;  ///< that are read together
  /// Of channels kChannels * n and those behind, by filter. The first of a part of the channels have
  /// one for every filter.
  const std::vector<simd::LaneRun>& runs(int64_t n) const { return runs_[static_cast<size_t>(n)]; }
  const std::vector<float>& values() const { return values_; }
  /// Where the first pixel of each weight is, seen from the first of its channels.
  const std::vector<uint32_t>& starts() const { return starts_; }

 private:
  std::vector<std::vector<simd::LaneRun>> runs_;
  std::vector<float> values_;
  std::vector<uint32_t> starts_;
};

/// As sparse_convolution(), of 16 images, on the calling thread. The map may have any strides; `out`
/// has lane_strides().
void lane_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                      const LaneWeights& weights, const float* bias, bool relu, float* out);

}  // namespace cpu

namespace simd {

/// Whether a register has 16 lanes.
bool has_image_lanes();

/// Some rows of the result of all filters.
struct LaneRows {
  const float* map = nullptr;  ///< the first row that they read, of the first channel
  const LaneRun* runs = nullptr;
  int64_t count = 0;
  const float* values = nullptr;
  const uint32_t* starts = nullptr;
  int64_t rows = 0;      ///< 1 to kMostLaneRows
  int64_t row_step = 0;  ///< floats from a row of the result to the next, in the map
  int64_t stride_x = 0;  ///< 1 or 2
  int64_t out_width = 0;
  float* sums = nullptr;    ///< [rows, out_width, 16] of the first filter
  int64_t filter_step = 0;  ///< floats from a filter's sums to those of the next
  /// Whether the sums begin here: with bias[f] if there is a bias, otherwise with 0.
  bool fresh = false;
  const float* bias = nullptr;
  bool relu = false;  ///< only the positive part
};

constexpr int64_t kMostLaneRows = 4;

/// For each run: sums[filter, y, x] += sum_n values[n] * map[starts[n] + y row_step + x stride_x 16]
void add_lane_runs(const LaneRows& rows);

}  // namespace simd
}  // namespace remcaps::kernels
