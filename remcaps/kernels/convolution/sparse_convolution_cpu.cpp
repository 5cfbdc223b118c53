#include "remcaps/kernels/convolution/sparse_convolution.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {
namespace {

using simd::kSparseMargin;
using simd::SparseRows;

// Images that a thread takes together: the weights of a block, read from memory for the first
// image, are still in the second-level cache for the others.
constexpr int64_t kImagesTogether = 4;

// How a channel of the map is laid out: for each column of the window and each row of the window
// below the stride, the rows of the map that such a weight meets, and of each row the pixels it
// meets: [kw, min(stride_y, kh), lines, ow].
class SparseLayout {
 public:
  SparseLayout(const ConvolutionShape& shape, const MapStrides& strides)
      : shape_(shape),
        strides_(strides),
        out_height_(shape.out_height()),
        out_width_(shape.out_width()),
        phases_(std::min(shape.stride_y, shape.kernel_height)),
        lines_(out_height_ + (shape.kernel_height - 1) / shape.stride_y),
        split_width_(pieces_of(shape.width + 2 * shape.padding_x, shape.stride_x)) {}

  int64_t places() const { return out_height_ * out_width_; }
  int64_t blocks() const { return pieces_of(shape_.channels, SparseWeights::kBlock); }
  /// With the margin that a vector reads and writes beyond the last row.
  int64_t block_floats() const { return SparseWeights::kBlock * channel_floats() + kSparseMargin; }

  // Where the row of each place of a block's windows begins.
  std::vector<int32_t> starts() const {
    std::vector<int32_t> result;
    result.reserve(SparseWeights::kBlock * shape_.taps());
    for (int64_t channel = 0; channel < SparseWeights::kBlock; ++channel)
      for (int64_t y = 0; y < shape_.kernel_height; ++y)
        for (int64_t x = 0; x < shape_.kernel_width; ++x)
          result.push_back(static_cast<int32_t>(
              channel * channel_floats() +
              ((x * phases_ + y % shape_.stride_y) * lines_ + y / shape_.stride_y) * out_width_));
    return result;
  }

  // Lays out the channels of a block of an image, with the margin behind them.
  void lay_out(const float* image, int64_t block, float* to) const {
    // The channel split by columns, with a margin for the copies of whole vectors.
    const int64_t split_floats = shape_.height * split_width_;
    std::vector<float> split(shape_.stride_x * split_floats + kSparseMargin);
    const int64_t begin = block * SparseWeights::kBlock;
    const int64_t end = std::min(shape_.channels, begin + SparseWeights::kBlock);
    for (int64_t channel = begin; channel < end; ++channel) {
      split_columns(image + channel * strides_.channel, split.data());
      for (int64_t x = 0; x < shape_.kernel_width; ++x) {
        const float* from = split.data() + x % shape_.stride_x * split_floats + x / shape_.stride_x;
        for (int64_t phase = 0; phase < phases_; ++phase, to += lines_ * out_width_)
          copy_lines(from, phase - shape_.padding_y, to);
      }
    }
    std::fill_n(to, kSparseMargin, 0.0F);
  }

 private:
  int64_t channel_floats() const { return shape_.kernel_width * phases_ * lines_ * out_width_; }

  // Sorts the columns of a channel by their remainder modulo the stride, padding included:
  // [H, W] -> [stride_x, H, split_width].
  void split_columns(const float* channel, float* to) const {
    const int64_t stride = shape_.stride_x, padding = shape_.padding_x;
    const int64_t step = stride * strides_.pixel;
    for (int64_t left = 0; left < stride; ++left, to += shape_.height * split_width_) {
      if (padding == 0 && shape_.width == split_width_ * stride &&
          strides_.row == shape_.width * strides_.pixel) {
        take_every(step, channel + left * strides_.pixel, shape_.height * split_width_, to);
        continue;
      }
      // The first of these columns that lies in the map, and the one behind the last.
      const int64_t first = pieces_of(std::max<int64_t>(0, padding - left), stride);
      const int64_t last = std::max(first, pieces_of(shape_.width + padding - left, stride));
      for (int64_t y = 0; y < shape_.height; ++y) {
        float* row = to + y * split_width_;
        std::fill_n(row, first, 0.0F);
        const int64_t column = first * stride + left - padding;
        take_every(step, channel + y * strides_.row + column * strides_.pixel, last - first,
                   row + first);
        std::fill(row + last, row + split_width_, 0.0F);
      }
    }
  }

  static void take_every(int64_t step, const float* from, int64_t count, float* to) {
    if (step == 1) {
      std::copy_n(from, count, to);
    } else if (step == 2) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
    }
  }

  // Rows first, first + stride, ... of a channel whose columns were split. A short row is copied as
  // one whole vector: what follows it is overwritten later, or is margin.
  void copy_lines(const float* from, int64_t first, float* to) const {
    const int64_t width = out_width_, height = shape_.height, step = shape_.stride_y;
    const int64_t count = lines_;
    for (int64_t line = 0, y = first; line < count; ++line, y += step, to += width) {
      if (y < 0 || y >= height)
        std::fill_n(to, width, 0.0F);
      else if (width <= kSparseMargin)
        std::memcpy(to, from + y * split_width_, kSparseMargin * sizeof(float));
      else
        std::copy_n(from + y * split_width_, width, to);
    }
  }

  const ConvolutionShape shape_;
  const MapStrides strides_;
  int64_t out_height_, out_width_;
  int64_t phases_, lines_, split_width_;
};

// The sums of some filters of an image: start() with the bias, add() block by block, finish().
class SparseSums {
 public:
  SparseSums(const SparseLayout& layout, const SparseWeights& weights, const float* bias, bool relu)
      : layout_(layout),
        weights_(weights),
        starts_(layout.starts()),
        row_(pieces_of(layout.places(), kSparseMargin) * kSparseMargin),
        bias_(bias),
        relu_(relu) {}

  /// Room for the sums of so many filters.
  int64_t floats(int64_t filters) const { return filters * row_; }

  SparseRows start(int64_t begin, int64_t end, float* sums) const {
    for (int64_t f = begin; f < end; ++f)
      std::fill_n(sums + (f - begin) * row_, row_, bias_ != nullptr ? bias_[f] : 0.0F);
    return {.filters = end - begin,
            .weights = weights_.values().data(),
            .places = weights_.places().data(),
            .begins = weights_.begins().data() + begin,
            .starts = starts_.data(),
            .length = layout_.places(),
            .sums = sums,
            .row = row_};
  }
  void add(SparseRows rows, int64_t block, const float* map) const {
    rows.begins += block * weights_.filters();
    rows.map = map;
    simd::add_sparse_rows(rows);
  }
  void finish(const SparseRows& rows, float* out) const { simd::copy_sums(rows, relu_, out); }

 private:
  const SparseLayout& layout_;
  const SparseWeights& weights_;
  const std::vector<int32_t> starts_;
  int64_t row_;  ///< floats of a filter's sums
  const float* bias_;
  bool relu_;
};

}  // namespace

SparseWeights::SparseWeights(const ConvolutionShape& shape, const float* weight)
    : filters_(shape.filters),
      channels_(shape.channels),
      kernel_height_(shape.kernel_height),
      kernel_width_(shape.kernel_width) {
  const int64_t taps = shape.taps();
  check(kBlock * taps <= std::numeric_limits<uint16_t>::max(),
        "sparse weights: windows of {}x{}; expected at most 8191 places", kernel_height_,
        kernel_width_);
  for (int64_t channel = 0; channel < channels_; channel += kBlock)
    for (int64_t f = 0; f < filters_; ++f) {
      begins_.push_back(static_cast<int64_t>(values_.size()));
      const float* from = weight + (f * channels_ + channel) * taps;
      const int64_t size = std::min(kBlock, channels_ - channel) * taps;
      for (int64_t place = 0; place < size; ++place) {
        if (from[place] == 0) continue;
        values_.push_back(from[place]);
        places_.push_back(static_cast<uint16_t>(place));
      }
    }
  begins_.push_back(static_cast<int64_t>(values_.size()));
}

double SparseWeights::density() const {
  return static_cast<double>(values_.size()) /
         static_cast<double>(filters_ * channels_ * kernel_height_ * kernel_width_);
}

void sparse_convolution(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                        const SparseWeights& weights, const float* bias, bool relu, float* out) {
  const SparseLayout layout(shape, strides);
  check(layout.block_floats() <= std::numeric_limits<int32_t>::max(),
        "sparse convolution: a map of {}x{} is too large", shape.height, shape.width);
  const SparseSums sums_of(layout, weights, bias, relu);
  const int64_t filters = weights.filters(), batch = shape.batch, threads = thread_count();
  const auto image = [&](int64_t i) { return map + i * strides.image; };
  const auto result = [&](int64_t i) { return out + i * filters * layout.places(); };
  if (batch >= threads) {
    const int64_t group = std::min(kImagesTogether, batch / threads);
    TaskQueue groups(pieces_of(batch, group));
    on_every_thread([&] {
      const Buffer room(layout.block_floats()), sums(group * sums_of.floats(filters));
      std::vector<SparseRows> rows;
      while (const auto taken = groups.next()) {
        const int64_t first = *taken * group, count = std::min(group, batch - first);
        rows.clear();
        for (int64_t i = 0; i < count; ++i)
          rows.push_back(sums_of.start(0, filters, sums.get() + i * sums_of.floats(filters)));
        for (int64_t block = 0; block < layout.blocks(); ++block)
          for (int64_t i = 0; i < count; ++i) {
            layout.lay_out(image(first + i), block, room.get());
            sums_of.add(rows[i], block, room.get());
          }
        for (int64_t i = 0; i < count; ++i) sums_of.finish(rows[i], result(first + i));
      }
    });
    return;
  }
  // Fewer images than threads: all threads work on one image, each on its share of the filters. Every
  // thread lays out the blocks for itself, which is faster than to read what another core has
  // written. More shares than threads would lay them out more often.
  const int64_t share = std::max<int64_t>(8, pieces_of(filters, threads));
  for (int64_t i = 0; i < batch; ++i) {
    TaskQueue shares(pieces_of(filters, share));
    on_every_thread([&] {
      const Buffer room(layout.block_floats()), sums(sums_of.floats(share));
      while (const auto taken = shares.next()) {
        const int64_t begin = *taken * share, end = std::min(filters, begin + share);
        const SparseRows rows = sums_of.start(begin, end, sums.get());
        for (int64_t block = 0; block < layout.blocks(); ++block) {
          layout.lay_out(image(i), block, room.get());
          sums_of.add(rows, block, room.get());
        }
        sums_of.finish(rows, result(i) + begin * layout.places());
      }
    });
  }
}

}  // namespace remcaps::kernels::cpu
