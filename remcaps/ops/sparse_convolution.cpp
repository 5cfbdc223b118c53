#include "remcaps/ops/sparse_convolution.h"

#include <fmt/ranges.h>

#include <cstring>
#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/kernels/convolution/sparse_convolution.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps {
namespace {

using kernels::Buffer;
using kernels::kSparseMargin;
using kernels::pieces_of;
using torch::Tensor;

// That a thread takes together: a block's weights, read from memory for the first, are still in the
// second-level cache for the others.
constexpr int64_t kImages = 4;

// How a channel of the map is laid out: for each column of the window and each line of it below the
// stride, the lines of the map that such a weight meets, of each line the pixels it meets:
// [kw, min(stride_y, kh), lines, ow].
class Layout {
 public:
  Layout(const Tensor& map, const SparseWeights& weights, std::array<int64_t, 2> stride,
         std::array<int64_t, 2> padding)
      : channels_(map.size(1)),
        map_height_(map.size(2)),
        map_width_(map.size(3)),
        channel_step_(map.stride(1)),
        line_step_(map.stride(2)),
        pixel_step_(map.stride(3)),
        kernel_(weights.kernel()),
        stride_(stride),
        padding_(padding),
        out_height_((map_height_ + 2 * padding[0] - kernel_[0]) / stride[0] + 1),
        out_width_((map_width_ + 2 * padding[1] - kernel_[1]) / stride[1] + 1),
        phases_(std::min(stride[0], kernel_[0])),
        lines_(out_height_ + (kernel_[0] - 1) / stride[0]),
        apart_width_(pieces_of(map_width_ + 2 * padding[1], stride[1])) {}

  int64_t out_height() const { return out_height_; }
  int64_t out_width() const { return out_width_; }
  int64_t places() const { return out_height_ * out_width_; }
  int64_t blocks() const { return pieces_of(channels_, SparseWeights::kBlock); }
  /// With what a vector reads and writes beyond the last row.
  int64_t block_floats() const { return SparseWeights::kBlock * channel_floats() + kSparseMargin; }

  // Where the row of each place of a block's windows begins.
  std::vector<int32_t> starts() const {
    std::vector<int32_t> result;
    result.reserve(SparseWeights::kBlock * kernel_[0] * kernel_[1]);
    for (int64_t channel = 0; channel < SparseWeights::kBlock; ++channel)
      for (int64_t y = 0; y < kernel_[0]; ++y)
        for (int64_t x = 0; x < kernel_[1]; ++x)
          result.push_back(static_cast<int32_t>(
              channel * channel_floats() +
              ((x * phases_ + y % stride_[0]) * lines_ + y / stride_[0]) * out_width_));
    return result;
  }

  // Lays a block's channels of an image out, with the margin behind them.
  void lay_out(const float* image, int64_t block, float* to) const {
    // The channel's columns sorted by what the stride leaves of them, with a margin for the copies.
    const int64_t apart_floats = map_height_ * apart_width_;
    std::vector<float> apart(stride_[1] * apart_floats + kSparseMargin);
    const int64_t begin = block * SparseWeights::kBlock;
    const int64_t end = std::min(channels_, begin + SparseWeights::kBlock);
    for (int64_t channel = begin; channel < end; ++channel) {
      take_apart(image + channel * channel_step_, apart.data());
      for (int64_t x = 0; x < kernel_[1]; ++x) {
        const float* from = apart.data() + x % stride_[1] * apart_floats + x / stride_[1];
        for (int64_t phase = 0; phase < phases_; ++phase, to += lines_ * out_width_)
          copy_lines(from, phase - padding_[0], to);
      }
    }
    std::fill_n(to, kSparseMargin, 0.0F);
  }

 private:
  int64_t channel_floats() const { return kernel_[1] * phases_ * lines_ * out_width_; }

  // [H, W] -> [stride_x, H, apart_width], padding included.
  void take_apart(const float* channel, float* to) const {
    for (int64_t left = 0; left < stride_[1]; ++left, to += map_height_ * apart_width_) {
      if (padding_[1] == 0 && map_width_ == apart_width_ * stride_[1] &&
          line_step_ == map_width_ * pixel_step_) {
        take_every(stride_[1] * pixel_step_, channel + left * pixel_step_,
                   map_height_ * apart_width_, to);
        continue;
      }
      // The first column of the map among them, and the one behind the last.
      const int64_t first = pieces_of(std::max<int64_t>(0, padding_[1] - left), stride_[1]);
      const int64_t last = std::max(first, pieces_of(map_width_ + padding_[1] - left, stride_[1]));
      for (int64_t y = 0; y < map_height_; ++y) {
        float* row = to + y * apart_width_;
        std::fill_n(row, first, 0.0F);
        const int64_t column = first * stride_[1] + left - padding_[1];
        take_every(stride_[1] * pixel_step_, channel + y * line_step_ + column * pixel_step_,
                   last - first, row + first);
        std::fill(row + last, row + apart_width_, 0.0F);
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

  // Lines first, first + stride, ... of a channel that was taken apart. A short one is copied as
  // one vector: what follows it is written later, or margin.
  void copy_lines(const float* from, int64_t first, float* to) const {
    const int64_t width = out_width_, height = map_height_, step = stride_[0], count = lines_;
    for (int64_t line = 0, y = first; line < count; ++line, y += step, to += width) {
      if (y < 0 || y >= height)
        std::fill_n(to, width, 0.0F);
      else if (width <= kSparseMargin)
        std::memcpy(to, from + y * apart_width_, kSparseMargin * sizeof(float));
      else
        std::copy_n(from + y * apart_width_, width, to);
    }
  }

  int64_t channels_, map_height_, map_width_;
  int64_t channel_step_, line_step_, pixel_step_;  ///< of the map, in floats
  std::array<int64_t, 2> kernel_, stride_, padding_;
  int64_t out_height_, out_width_;
  int64_t phases_, lines_, apart_width_;
};

class Convolution {
 public:
  Convolution(const Layout& layout, const SparseWeights& weights, const Tensor& bias, bool relu)
      : layout_(layout),
        weights_(weights),
        starts_(layout.starts()),
        row_(pieces_of(layout.places(), kSparseMargin) * kSparseMargin),
        bias_(bias.defined() ? bias.data_ptr<float>() : nullptr),
        relu_(relu) {}

  /// Of the sums of so many filters.
  int64_t floats(int64_t filters) const { return filters * row_; }

  /// The sums of an image's filters begin..end, in `sums`: first the bias, ...
  kernels::SparseRows start(int64_t begin, int64_t end, float* sums) const {
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
  /// ... then block by block, as the layout has it, ...
  void add(kernels::SparseRows rows, int64_t block, const float* map) const {
    rows.begins += block * weights_.filters();
    rows.map = map;
    kernels::add_sparse_rows(rows);
  }
  /// ... and what became of them.
  void finish(const kernels::SparseRows& rows, float* out) const {
    kernels::copy_sums(rows, relu_, out);
  }

 private:
  const Layout& layout_;
  const SparseWeights& weights_;
  const std::vector<int32_t> starts_;
  int64_t row_;  ///< floats of a filter's sums
  const float* bias_;
  bool relu_;
};

}  // namespace

SparseWeights::SparseWeights(const Tensor& weight)
    : filters_(weight.size(0)), channels_(weight.size(1)), kernel_{weight.size(2), weight.size(3)} {
  const int64_t taps = kernel_[0] * kernel_[1];
  check(weight.is_cpu() && weight.scalar_type() == torch::kFloat32 &&
            kBlock * taps <= std::numeric_limits<uint16_t>::max(),
        "sparse weights: [{}]; expected float32 on the CPU, windows of at most 8191 places",
        fmt::join(weight.sizes(), ", "));
  const Tensor dense = weight.detach().contiguous();
  for (int64_t channel = 0; channel < channels_; channel += kBlock)
    for (int64_t f = 0; f < filters_; ++f) {
      begins_.push_back(static_cast<int64_t>(values_.size()));
      const float* from = dense.data_ptr<float>() + (f * channels_ + channel) * taps;
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
         static_cast<double>(filters_ * channels_ * kernel_[0] * kernel_[1]);
}

Tensor sparse_convolution(const Tensor& map, const SparseWeights& weights, const Tensor& bias,
                          std::array<int64_t, 2> stride, std::array<int64_t, 2> padding,
                          bool relu) {
  const auto kernel = weights.kernel();
  check(map.is_cpu() && map.scalar_type() == torch::kFloat32 && map.dim() == 4 &&
            map.size(1) == weights.channels() && map.size(2) + 2 * padding[0] >= kernel[0] &&
            map.size(3) + 2 * padding[1] >= kernel[1],
        "sparse convolution: map [{}] and {} channels of {}x{}; expected float32 [B, C, H, W] on "
        "the CPU",
        fmt::join(map.sizes(), ", "), weights.channels(), kernel[0], kernel[1]);
  const Layout layout(map, weights, stride, padding);
  check(layout.block_floats() <= std::numeric_limits<int32_t>::max(),
        "sparse convolution: a map of {}x{} is too large", map.size(2), map.size(3));
  const Tensor dense_bias = bias.defined() ? bias.contiguous() : Tensor();
  const Convolution convolution(layout, weights, dense_bias, relu);
  const int64_t filters = weights.filters();
  const Tensor out = torch::empty({map.size(0), filters, layout.out_height(), layout.out_width()},
                                  map.options().requires_grad(false));
  const auto image = [&](int64_t i) { return map.data_ptr<float>() + i * map.stride(0); };
  const auto result = [&](int64_t i) {
    return out.data_ptr<float>() + i * filters * layout.places();
  };
  const int64_t batch = map.size(0), threads = thread_count();
  if (batch >= threads) {
    const int64_t group = std::min(kImages, batch / threads);
    TaskQueue groups(pieces_of(batch, group));
    on_every_thread([&] {
      const Buffer room(layout.block_floats()), sums(group * convolution.floats(filters));
      std::vector<kernels::SparseRows> rows;
      while (const auto taken = groups.next()) {
        const int64_t first = *taken * group, count = std::min(group, batch - first);
        rows.clear();
        for (int64_t i = 0; i < count; ++i)
          rows.push_back(
              convolution.start(0, filters, sums.get() + i * convolution.floats(filters)));
        for (int64_t block = 0; block < layout.blocks(); ++block)
          for (int64_t i = 0; i < count; ++i) {
            layout.lay_out(image(first + i), block, room.get());
            convolution.add(rows[i], block, room.get());
          }
        for (int64_t i = 0; i < count; ++i) convolution.finish(rows[i], result(first + i));
      }
    });
    return out;
  }
  // Fewer images than threads: all of them work on one, each on some of its filters. A block is
  // laid out by every thread for itself: that is quicker than to read what another core has
  // written.
  for (int64_t i = 0; i < batch; ++i)
    parallel_for(0, filters, 8, [&](int64_t begin, int64_t end) {
      const Buffer room(layout.block_floats()), sums(convolution.floats(end - begin));
      const kernels::SparseRows rows = convolution.start(begin, end, sums.get());
      for (int64_t block = 0; block < layout.blocks(); ++block) {
        layout.lay_out(image(i), block, room.get());
        convolution.add(rows, block, room.get());
      }
      convolution.finish(rows, result(i) + begin * layout.places());
    });
  return out;
}

}  // namespace remcaps
