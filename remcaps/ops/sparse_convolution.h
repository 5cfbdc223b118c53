// Convolutions of pruned networks on the CPU: work for the weights that are left, and no other.
//
// For each column of the window, and each line of it up to the stride, the pixels that a weight
// there meets from place to place of the result are put side by side. A weight is then one
// multiply-add of a row of floats, for all places of the result at once, whose sums stay in
// registers: three vectors of AVX-512 for the 6x6 places of DR-CapsNet's primary layer. A block of
// channels at a time is laid out so, and stays in the first-level cache while all filters pass.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <vector>

namespace remcaps {

/// The weights of a convolution that are not zero.
class SparseWeights {
 public:
  /// [F, C, kh, kw] float32 on the CPU, of which a copy is kept.
  explicit SparseWeights(const torch::Tensor& weight);

  static constexpr int64_t kBlock = 8;  ///< channels in a block

  int64_t filters() const { return filters_; }
  int64_t channels() const { return channels_; }
  std::array<int64_t, 2> kernel() const { return kernel_; }
  /// Share of the weights that are left.
  double density() const;

  /// What is left, block by block of the channels and in a block filter by filter.
  const std::vector<float>& values() const { return values_; }
  /// Where in its window each is: (channel in its block * kh + line) * kw + column.
  const std::vector<uint16_t>& places() const { return places_; }
  /// Where each filter of each block begins, [blocks, filters]; then where the last one ends.
  const std::vector<int64_t>& begins() const { return begins_; }

 private:
  int64_t filters_, channels_;
  std::array<int64_t, 2> kernel_;
  std::vector<float> values_;
  std::vector<uint16_t> places_;
  std::vector<int64_t> begins_;
};

/// A convolution without dilation and groups, of float32 on the CPU, without a gradient.
///   map [B, C, H, W]   bias [F] or undefined   -> [B, F, oh, ow]
/// `padding` zeros are put around the map; `relu` keeps the positive part. An image's result
/// depends neither on the others nor on the number of threads.
torch::Tensor sparse_convolution(const torch::Tensor& map, const SparseWeights& weights,
                                 const torch::Tensor& bias, std::array<int64_t, 2> stride,
                                 std::array<int64_t, 2> padding, bool relu);

}  // namespace remcaps
