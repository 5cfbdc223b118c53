#include "remcaps/kernels/convolution/lane_convolution.h"

#include <algorithm>

#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {
namespace {

// [16, H, W] of each channel -> [C, H, W, 16]
void take_images_into_lanes(const ConvolutionShape& shape, const MapStrides& strides,
                            const float* map, float* to) {
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t y = 0; y < shape.height; ++y)
      for (int64_t x = 0; x < shape.width; ++x, to += kLaneImages) {
        const float* from = map + c * strides.channel + y * strides.row + x * strides.pixel;
        for (int64_t image = 0; image < kLaneImages; ++image)
          to[image] = from[image * strides.image];
      }
}

}  // namespace

MapStrides lane_strides(int64_t height, int64_t width) {
  return {1, height * width * kLaneImages, width * kLaneImages, kLaneImages};
}

bool LaneWeights::can_be_made(const ConvolutionShape& shape) {
  return simd::has_image_lanes() && shape.padding_y == 0 && shape.padding_x == 0 &&
         shape.stride_x <= 2 && simd::SparseLayout(shape, {}).row_floats() > simd::kMostChained &&
         kChannels * shape.height * shape.width * kLaneImages < int64_t{1} << 32;
}

LaneWeights::LaneWeights(const ConvolutionShape& shape, const SparseWeights& weights)
    : runs_(static_cast<size_t>(pieces_of(shape.channels, kChannels))) {
  // Of each filter the weights of a block of channels are in the order of channels.
  constexpr int64_t kGroups = SparseWeights::kBlock / kChannels;
  const int64_t taps = shape.taps(), width = shape.kernel_width;
  const auto groups = static_cast<int64_t>(runs_.size());
  std::vector<int64_t> run_of(static_cast<size_t>(shape.filters));
  for (int64_t block = 0; block < pieces_of(shape.channels, SparseWeights::kBlock); ++block) {
    const int64_t first_run = block * shape.filters;
    for (int64_t run = first_run; run < first_run + shape.filters; ++run)
      run_of[weights.run_filters()[static_cast<size_t>(run)]] = run;
    for (int64_t group = 0; group < kGroups && block * kGroups + group < groups; ++group)
      for (int64_t f = 0; f < shape.filters; ++f) {
        const auto begin = static_cast<uint32_t>(values_.size());
        const int64_t* run = weights.begins().data() + run_of[static_cast<size_t>(f)];
        const auto first = weights.places().begin() + run[0],
                   last = weights.places().begin() + run[1];
        auto at = std::lower_bound(first, last, group * kChannels * taps);
        for (; at != last && *at < (group + 1) * kChannels * taps; ++at) {
          const float value = weights.values()[static_cast<size_t>(at - weights.places().begin())];
          if (value == 0) continue;
          const int64_t place = *at - group * kChannels * taps;
          const int64_t row = place / taps * shape.height + place % taps / width;
          values_.push_back(value);
          starts_.push_back(
              static_cast<uint32_t>((row * shape.width + place % width) * kLaneImages));
        }
        const auto end = static_cast<uint32_t>(values_.size());
        const int64_t n = block * kGroups + group;
        if (end > begin || n * kChannels % sparse_part_channels(shape.channels) == 0)
          runs_[static_cast<size_t>(n)].push_back({static_cast<uint32_t>(f), begin, end});
      }
  }
}

void lane_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                      const LaneWeights& weights, const float* bias, bool relu, float* out) {
  const int64_t channel = shape.height * shape.width * kLaneImages;
  const bool in_lanes = strides.image == 1 && strides.pixel == kLaneImages &&
                        strides.row == shape.width * kLaneImages && strides.channel == channel;
  const Buffer copy(in_lanes ? 0 : shape.channels * channel);
  if (!in_lanes) take_images_into_lanes(shape, strides, map, copy.get());
  const float* from = in_lanes ? map : copy.get();

  const int64_t height = shape.out_height(), width = shape.out_width();
  const int64_t pieces = pieces_of(height, simd::kMostLaneRows), most = pieces_of(height, pieces);
  const int64_t groups = pieces_of(shape.channels, LaneWeights::kChannels);
  const int64_t part = sparse_part_channels(shape.channels) / LaneWeights::kChannels;
  const int64_t row = width * kLaneImages, filter_step = height * row;
  const Buffer part_sums(groups > part ? shape.filters * most * row : 0);
  for (int64_t y = 0; y < height; y += most) {
    const int64_t rows = std::min(most, height - y);
    for (int64_t n = 0; n < groups; ++n) {
      const bool is_first = n < part;
      simd::add_lane_runs({.map = from + n * LaneWeights::kChannels * channel +
                                  y * shape.stride_y * shape.width * kLaneImages,
                           .runs = weights.runs(n).data(),
                           .count = static_cast<int64_t>(weights.runs(n).size()),
                           .values = weights.values().data(),
                           .starts = weights.starts().data(),
                           .rows = rows,
                           .row_step = shape.stride_y * shape.width * kLaneImages,
                           .stride_x = shape.stride_x,
                           .out_width = width,
                           .sums = is_first ? out + y * row : part_sums.get(),
                           .filter_step = is_first ? filter_step : rows * row,
                           .fresh = n % part == 0,
                           .bias = is_first ? bias : nullptr,
                           .relu = relu && groups == 1});
      if (is_first || (n + 1 < groups && (n + 1) % part != 0)) continue;
      for (int64_t f = 0; f < shape.filters; ++f)
        simd::add_sums(part_sums.get() + f * rows * row, rows * row,
                       out + f * filter_step + y * row);
    }
  }
  if (relu && groups > 1)
    for (int64_t x = 0; x < shape.filters * filter_step; ++x) out[x] = std::max(out[x], 0.0F);
}

}  // namespace remcaps::kernels::cpu
