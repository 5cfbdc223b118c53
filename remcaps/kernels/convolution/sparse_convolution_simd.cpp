#include "remcaps/kernels/convolution/sparse_convolution.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "remcaps/kernels/simd/buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/convolution/sparse_convolution_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::kSparseMargin;
using simd::SparseLayout;
using simd::SparseRows;

static_assert(kSparseMargin % kRegisterLanes == 0);

constexpr int64_t kShortRow = 8;  // floats

void take_every(int64_t step, const float* from, int64_t count, float* to) {
  if (step == 1) {
    std::copy_n(from, count, to);
  } else if (step == 2) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

// Sorts the columns of a channel by their remainder modulo the stride, padding included:
// [H, W] -> [stride_x, H, split_width].
void split_columns(const SparseLayout& layout, const float* channel, float* to) {
  const ConvolutionShape& shape = layout.shape;
  const MapStrides& strides = layout.strides;
  const int64_t stride = shape.stride_x, padding = shape.padding_x;
  const int64_t step = stride * strides.pixel;
  for (int64_t left = 0; left < stride; ++left, to += shape.height * layout.split_width) {
    if (padding == 0 && shape.width == layout.split_width * stride &&
        strides.row == shape.width * strides.pixel) {
      take_every(step, channel + left * strides.pixel, shape.height * layout.split_width, to);
      continue;
    }
    // The first of these columns that lies in the map, and the one behind the last.
    const int64_t first = pieces_of(std::max<int64_t>(0, padding - left), stride);
    const int64_t last = std::max(first, pieces_of(shape.width + padding - left, stride));
    for (int64_t y = 0; y < shape.height; ++y) {
      float* row = to + y * layout.split_width;
      std::fill_n(row, first, 0.0F);
      const int64_t column = first * stride + left - padding;
      take_every(step, channel + y * strides.row + column * strides.pixel, last - first,
                 row + first);
      std::fill(row + last, row + layout.split_width, 0.0F);
    }
  }
}

// Rows first, first + stride, ... of a channel whose columns were split. More of a short row is
// copied than it has: what follows it is overwritten later, or is margin.
void copy_lines(const SparseLayout& layout, const float* from, int64_t first, float* to) {
  const int64_t width = layout.width, height = layout.shape.height;
  const int64_t step = layout.shape.stride_y, lines = layout.lines, pitch = layout.pitch;
  int64_t y = first;
  for (int64_t line = 0; line < lines; ++line, y += step, to += pitch) {
    const float* row = from + y * layout.split_width;
    if (y < 0 || y >= height)
      std::fill_n(to, pitch, 0.0F);
    else if (width <= kShortRow)
      std::memcpy(to, row, kShortRow * sizeof(float));
    else if (width <= kSparseMargin)
      std::memcpy(to, row, kSparseMargin * sizeof(float));
    else
      std::copy_n(row, width, to);
  }
}

void lay_out_any(const SparseLayout& layout, const float* channels, int64_t count, float* scratch,
                 float* out) {
  const ConvolutionShape& shape = layout.shape;
  for (int64_t channel = 0; channel < count; ++channel) {
    split_columns(layout, channels + channel * layout.strides.channel, scratch);
    for (int64_t x = 0; x < layout.columns; ++x) {
      const float* from =
          scratch + x % shape.stride_x * shape.height * layout.split_width + x / shape.stride_x;
      for (int64_t phase = 0; phase < layout.phases; ++phase, out += layout.phase_floats)
        copy_lines(layout, from, phase - shape.padding_y, out);
    }
  }
  std::fill_n(out, kSparseMargin, 0.0F);
}

void add_all(const float* from, int64_t count, float* sums) {
  for (int64_t x = 0; x < count; x += kRegisterLanes)
    store_register(add_register(load_register(sums + x), load_register(from + x)), sums + x);
}

// Sums that fit into AVX2's 16 registers together with weights and a row; with AVX-512 as many as
// kMostUnfolded asks for.
constexpr int kMostSums = kRegisterLanes == 16 ? 8 : 12;

// Loads are what limits the loop below, so it reads several weights and starts at a time.
constexpr int kTogether = cpu::SparseWeights::kTogether;
static_assert(kTogether == 4);

struct FourStarts {
  explicit FourStarts(const uint32_t* from) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(pairs, from, sizeof(pairs));
  }
  template <int kNumber>
  uint32_t get() const {
    return static_cast<uint32_t>(pairs[kNumber / 2] >> (kNumber % 2 * 32));
  }
  uint64_t pairs[2];
};

// The sum of a multiply-add can be used again only about four cycles later. With few sums the units
// would wait for them, so every other weight gets sums of its own. With more of them they hardly
// wait, and lane_convolution.h adds in the same order.
constexpr int chains_of(int sums) {
  return sums * kRegisterLanes <= simd::kMostChained ? 2 : 1;
}

// Registers first to first + kSums - 1 of each filter's sums. A group of them is kSparseMargin
// floats, or all of them.
template <int kSums, bool kGrouped>
void add_registers(const SparseRows& s, int64_t first) {
  constexpr int kChains = chains_of(kSums);
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : kSums;
  const int64_t from = first * kRegisterLanes, step = s.group_step;
  const float* map = s.map + (kGrouped ? first / kGroup * step : from);
  for (int64_t f = 0; f < s.filters; ++f) {
    float* row = s.sums + f * s.row + from;
    Register sums[kChains][kSums];
    const Register bias = set_register(s.bias == nullptr ? 0.0F : s.bias[f]);
    for (int v = 0; v < kSums; ++v) {
      sums[0][v] = s.fresh ? bias : load_register(row + v * kRegisterLanes);
      for (int chain = 1; chain < kChains; ++chain) sums[chain][v] = set_register(0.0F);
    }
    const auto add = [&](Register weight, uint32_t start, Register* to) HWY_ATTR {
      const float* pixels = map + start;
      for (int v = 0; v < kSums; v += kGroup, pixels += step)
        for (int i = 0; i < kGroup; ++i)
          to[v + i] = fma(weight, load_register(pixels + i * kRegisterLanes), to[v + i]);
    };
    for (int64_t n = s.begins[f]; n < s.begins[f + 1]; n += kTogether) {
      const FourFloats weights(s.weights + n);
      const FourStarts starts(s.starts + n);
      add(weights.get<0>(), starts.get<0>(), sums[0]);
      add(weights.get<1>(), starts.get<1>(), sums[kChains - 1]);
      add(weights.get<2>(), starts.get<2>(), sums[0]);
      add(weights.get<3>(), starts.get<3>(), sums[kChains - 1]);
    }
    for (int v = 0; v < kSums; ++v) {
      for (int chain = 1; chain < kChains; ++chain)
        sums[0][v] = add_register(sums[0][v], sums[chain][v]);
      store_register(sums[0][v], row + v * kRegisterLanes);
    }
  }
}

// add_registers() with 1 to kMostSums registers.
template <bool kGrouped, int... kBelow>
void add_so_many(const SparseRows& s, int64_t first, int64_t registers,
                 std::integer_sequence<int, kBelow...>) {
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : 1;
  ((registers == (kBelow + 1) * kGroup ? add_registers<(kBelow + 1) * kGroup, kGrouped>(s, first)
                                       : void()),
   ...);
}

// Cuts the row into pieces of about the same size.
template <bool kGrouped>
void add_pieces_of(const SparseRows& s) {
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : 1;
  constexpr int kMost = std::max(1, kMostSums / kGroup);
  const int64_t groups = s.row / kRegisterLanes / kGroup;
  const int64_t pieces = (groups + kMost - 1) / kMost;
  for (int64_t piece = 0, done = 0; piece < pieces; ++piece) {
    const int64_t size = (groups - done + pieces - piece - 1) / (pieces - piece);
    add_so_many<kGrouped>(s, done * kGroup, size * kGroup,
                          std::make_integer_sequence<int, kMost>());
    done += size;
  }
}

void add_pieces(const SparseRows& s) {
  s.group_step > 0 ? add_pieces_of<true>(s) : add_pieces_of<false>(s);
}

template <bool kRelu>
void copy_pixels(const float* sums, int64_t count, float* out) {
  const Register zero = set_register(0.0F);
  int64_t x = 0;
  for (; x + kRegisterLanes <= count; x += kRegisterLanes) {
    const Register pixels = load_register(sums + x);
    store_register(kRelu ? max(pixels, zero) : pixels, out + x);
  }
  for (; x < count; ++x) out[x] = kRelu && sums[x] < 0 ? 0.0F : sums[x];
}

template <bool kRelu>
void copy_filters(const SparseLayout& layout, int64_t filters, const float* sums, int64_t row,
                  float* out) {
  // Rows that lie together are one.
  const bool together = layout.group_rows == 0 && layout.pitch == layout.out_width;
  const int64_t rows = together ? 1 : layout.out_height;
  const int64_t count = together ? layout.out_height * layout.out_width : layout.out_width;
  for (int64_t f = 0; f < filters; ++f, sums += row)
    for (int64_t y = 0; y < rows; ++y, out += count)
      copy_pixels<kRelu>(sums + layout.sums_of_row(y), count, out);
}

void copy_any(const SparseLayout& layout, int64_t filters, const float* sums, int64_t row,
              bool relu, float* out) {
  return relu ? copy_filters<true>(layout, filters, sums, row, out)
              : copy_filters<false>(layout, filters, sums, row, out);
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(lay_out_any);
HWY_EXPORT(add_pieces);
HWY_EXPORT(add_all);
HWY_EXPORT(copy_any);
#endif

// Windows of a map that are laid out as a whole. Their parts that are summed together, eight
// registers of each, fit into the first-level cache.
constexpr int64_t kMostUnfolded = 84;

// Rows of eight floats are aligned to half a cache line, so that fewer loads cross from one line to
// the next.
static int64_t pitch_of(const ConvolutionShape& shape) {
  constexpr int64_t kEight = 8;
  const auto vectors = [&](int64_t pitch) {
    return pieces_of(shape.out_height() * pitch, kSparseMargin);
  };
  const int64_t width = shape.out_width();
  return width < kEight && vectors(kEight) == vectors(width) ? kEight : width;
}

// Short rows are grouped where that takes no more vectors than copies for each column of the
// window, which are more to lay out and leave room for fewer channels in the cache.
static int64_t group_rows_of(const ConvolutionShape& shape, int64_t pitch, int64_t copied_pitch) {
  if (shape.out_width() > kSparseMargin) return 0;
  const int64_t rows = (kSparseMargin - shape.out_width()) / pitch + 1;
  const bool fits = pieces_of(shape.out_height(), rows) <=
                    pieces_of(shape.out_height() * copied_pitch, kSparseMargin);
  return fits ? rows : 0;
}

SparseLayout::SparseLayout(const ConvolutionShape& map_shape, const MapStrides& map_strides)
    : shape(map_shape),
      strides(map_strides),
      out_height(map_shape.out_height()),
      out_width(map_shape.out_width()),
      split_width(pieces_of(map_shape.width + 2 * map_shape.padding_x, map_shape.stride_x)) {
  const int64_t copied_pitch = pitch_of(shape);
  group_rows = group_rows_of(shape, split_width, copied_pitch);
  const bool grouped = group_rows > 0;
  columns = grouped ? std::min(shape.stride_x, shape.kernel_width) : shape.kernel_width;
  width = grouped ? split_width : out_width;
  pitch = grouped ? split_width : copied_pitch;
  unfolded = !grouped && shape.channels * shape.taps() <= kMostUnfolded;
  phases = unfolded ? shape.kernel_height : std::min(shape.stride_y, shape.kernel_height);
  lines = unfolded ? out_height : out_height + (shape.kernel_height - 1) / shape.stride_y;
  phase_floats = lines * pitch;
  if (unfolded) phase_floats = pieces_of(phase_floats, kSparseMargin) * kSparseMargin;
}

int64_t SparseLayout::start(int64_t y, int64_t x) const {
  const int64_t column = group_rows > 0 ? x % shape.stride_x : x;
  const int64_t pixel = group_rows > 0 ? x / shape.stride_x : 0;
  const int64_t phase = unfolded ? y : y % shape.stride_y;
  const int64_t line = unfolded ? 0 : y / shape.stride_y;
  return (column * phases + phase) * phase_floats + line * pitch + pixel;
}

int64_t SparseLayout::row_floats() const {
  const int64_t vectors = group_rows > 0 ? pieces_of(out_height, group_rows)
                                         : pieces_of(out_height * pitch, kSparseMargin);
  return vectors * kSparseMargin;
}

void lay_out_channels(const SparseLayout& layout, const float* channels, int64_t count,
                      float* scratch, float* out) {
  REMCAPS_DISPATCH(lay_out_any)(layout, channels, count, scratch, out);
}

void add_sparse_rows(const SparseRows& rows) {
  REMCAPS_DISPATCH(add_pieces)(rows);
}

void add_sums(const float* from, int64_t count, float* sums) {
  REMCAPS_DISPATCH(add_all)(from, count, sums);
}

void copy_sums(const SparseLayout& layout, int64_t filters, const float* sums, int64_t row,
               bool relu, float* out) {
  REMCAPS_DISPATCH(copy_any)(layout, filters, sums, row, relu, out);
}

}  // namespace remcaps::kernels::simd
#endif
