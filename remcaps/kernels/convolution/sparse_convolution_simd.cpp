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
    else if (width <= 2 * kSparseMargin) {
      std::memcpy(to, row, kSparseMargin * sizeof(float));
      const int64_t rest = width - kSparseMargin;
      std::memcpy(to + rest, row + rest, kSparseMargin * sizeof(float));
    } else {
      std::copy_n(row, width, to);
    }
  }
}

// Whether the pixels of a line lie two apart in the map, and fit into kSparseMargin floats.
bool has_short_lines_in_steps(const SparseLayout& layout) {
  const ConvolutionShape& shape = layout.shape;
  return layout.group_rows > 0 && shape.stride_x == 2 && shape.padding_x == 0 &&
         layout.strides.pixel == 1 && layout.width <= kSparseMargin;
}

// Such lines, which need not be split first.
void take_lines(const SparseLayout& layout, const float* channel, float* out) {
  const ConvolutionShape& shape = layout.shape;
  const float* end = channel + (shape.height - 1) * layout.strides.row + shape.width;
  const int64_t column_floats = layout.phases * layout.phase_floats, pitch = layout.pitch;
  for (int64_t phase = 0; phase < layout.phases; ++phase, out += layout.phase_floats) {
    float* to = out;
    int64_t y = phase - shape.padding_y;
    for (int64_t line = 0; line < layout.lines; ++line, y += shape.stride_y, to += pitch) {
      const float* row = channel + y * layout.strides.row;
      // The lines that follow are written later, but not what follows the last one.
      const bool whole =
          (layout.lines - line) * pitch >= kSparseMargin && end - row > 2 * kSparseMargin;
      for (int64_t column = 0; column < layout.columns; ++column) {
        float* from_here = to + column * column_floats;
        const int64_t count = pieces_of(shape.width - column, 2);
        if (y < 0 || y >= shape.height) {
          std::fill_n(from_here, pitch, 0.0F);
        } else if (whole) {
          for (int64_t x = 0; x < kSparseMargin; x += kRegisterLanes)
            store_register(even_lanes(row + column + 2 * x), from_here + x);
        } else {
          take_every(2, row + column, count, from_here);
          std::fill(from_here + count, from_here + pitch, 0.0F);
        }
      }
    }
  }
}

void lay_out_any(const SparseLayout& layout, const float* channels, int64_t count, float* scratch,
                 float* out) {
  const ConvolutionShape& shape = layout.shape;
  const bool takes_lines = has_short_lines_in_steps(layout);
  for (int64_t channel = 0; channel < count; ++channel) {
    if (takes_lines) {
      take_lines(layout, channels + channel * layout.strides.channel, out);
      out += layout.channel_floats();
      continue;
    }
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

template <typename Start>
class FourStarts {
 public:
  explicit FourStarts(const Start* from) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(words_, from, sizeof(words_));
  }
  template <int kNumber>
  Start get() const {
    return static_cast<Start>(words_[kNumber / kInWord] >>
                              (kNumber % kInWord * 8 * static_cast<int>(sizeof(Start))));
  }

 private:
  static constexpr int kInWord = static_cast<int>(sizeof(uint64_t) / sizeof(Start));
  uint64_t words_[4 / kInWord];
};

// The sum of a multiply-add can be used again only about four cycles later. With few sums the units
// would wait for them, so every other weight gets sums of its own. With more of them they hardly
// wait, and lane_convolution.h adds in the same order.
constexpr int chains_of(int sums) {
  return sums * kRegisterLanes <= simd::kMostChained ? 2 : 1;
}

// Also two runs take turns, which are about as long, if there are registers for that.
constexpr int kRunsInTurn = kRegisterLanes == 16 ? 2 : 1;

// Registers first to first + kSums - 1 of the sums of kRuns runs, which are in turn. A group of them
// is kSparseMargin floats, or all of them.
template <int kSums, bool kGrouped, int kRuns, typename Start>
HWY_INLINE void add_run(const SparseRows& s, const Start* all_starts, int64_t first, int64_t run) {
  constexpr int kChains = chains_of(kSums);
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : kSums;
  const int64_t from = first * kRegisterLanes, step = s.group_step;
  const float* map = s.map + (kGrouped ? first / kGroup * step : from);
  float* rows[kRuns];
  Register sums[kRuns][kChains][kSums];
  for (int r = 0; r < kRuns; ++r) {
    const uint32_t filter = s.filters[run + r];
    rows[r] = s.sums + filter * s.row + from;
    const Register bias = set_register(s.bias == nullptr ? 0.0F : s.bias[filter]);
    for (int v = 0; v < kSums; ++v) {
      sums[r][0][v] = s.fresh ? bias : load_register(rows[r] + v * kRegisterLanes);
      for (int chain = 1; chain < kChains; ++chain) sums[r][chain][v] = set_register(0.0F);
    }
  }
  const auto add = [&](Register weight, Start start, Register* chain) HWY_ATTR {
    const float* pixels = map + start;
    for (int v = 0; v < kSums; v += kGroup, pixels += step)
      for (int i = 0; i < kGroup; ++i)
        chain[v + i] = fma(weight, load_register(pixels + i * kRegisterLanes), chain[v + i]);
  };
  const auto add_four = [&](int64_t n, Register(&to)[kChains][kSums]) HWY_ATTR {
    const FourFloats weights(s.weights + n);
    const FourStarts<Start> starts(all_starts + n);
    add(weights.template get<0>(), starts.template get<0>(), to[0]);
    add(weights.template get<1>(), starts.template get<1>(), to[kChains - 1]);
    add(weights.template get<2>(), starts.template get<2>(), to[0]);
    add(weights.template get<3>(), starts.template get<3>(), to[kChains - 1]);
  };
  const int64_t begin = s.begins[run], end = s.begins[run + 1];
  int64_t n = begin;
  if constexpr (kRuns == 2) {  // the second is not longer
    const int64_t last = s.begins[run + 2];
    for (int64_t second = end; second < last; n += kTogether, second += kTogether) {
      add_four(n, sums[0]);
      add_four(second, sums[1]);
    }
  }
  for (; n < end; n += kTogether) add_four(n, sums[0]);
  const Register zero = set_register(0.0F);
  for (int r = 0; r < kRuns; ++r)
    for (int v = 0; v < kSums; ++v) {
      Register sum = sums[r][0][v];
      for (int chain = 1; chain < kChains; ++chain) sum = add_register(sum, sums[r][chain][v]);
      store_register(s.relu ? max(sum, zero) : sum, rows[r] + v * kRegisterLanes);
    }
}

template <int kSums, bool kGrouped, typename Start>
void add_registers(const SparseRows& s, const Start* starts, int64_t first) {
  int64_t run = 0;
  for (; run + kRunsInTurn <= s.runs; run += kRunsInTurn)
    add_run<kSums, kGrouped, kRunsInTurn>(s, starts, first, run);
  for (; run < s.runs; ++run) add_run<kSums, kGrouped, 1>(s, starts, first, run);
}

// add_registers() with 1 to kMostSums registers.
template <bool kGrouped, typename Start, int... kBelow>
void add_so_many(const SparseRows& s, const Start* starts, int64_t first, int64_t registers,
                 std::integer_sequence<int, kBelow...>) {
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : 1;
  ((registers == (kBelow + 1) * kGroup
        ? add_registers<(kBelow + 1) * kGroup, kGrouped>(s, starts, first)
        : void()),
   ...);
}

// Cuts the row into pieces of about the same size.
template <bool kGrouped, typename Start>
void add_pieces_of(const SparseRows& s, const Start* starts) {
  constexpr int kGroup = kGrouped ? kSparseMargin / kRegisterLanes : 1;
  constexpr int kMost = std::max(1, kMostSums / kGroup);
  const int64_t groups = s.row / kRegisterLanes / kGroup;
  const int64_t pieces = (groups + kMost - 1) / kMost;
  for (int64_t piece = 0, done = 0; piece < pieces; ++piece) {
    const int64_t size = (groups - done + pieces - piece - 1) / (pieces - piece);
    add_so_many<kGrouped>(s, starts, done * kGroup, size * kGroup,
                          std::make_integer_sequence<int, kMost>());
    done += size;
  }
}

template <typename Start>
void add_pieces_from(const SparseRows& s, const Start* starts) {
  s.group_step > 0 ? add_pieces_of<true>(s, starts) : add_pieces_of<false>(s, starts);
}

void add_pieces(const SparseRows& s) {
  if constexpr (kRegisterLanes >= simd::kNarrowLanes) {
    if (s.narrow_starts != nullptr) return add_pieces_from(s, s.narrow_starts);
  }
  add_pieces_from(s, s.wide_starts);
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
  const bool together = layout.rows_are_one();
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

int64_t sparse_lanes_of() {
  return kRegisterLanes;
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
HWY_EXPORT(sparse_lanes_of);
#endif

int64_t sparse_lanes() {
  return REMCAPS_DISPATCH(sparse_lanes_of)();
}

// Windows of a map that are laid out as a whole. Their parts that are summed together, eight
// registers of each, fit into the first-level cache.
constexpr int64_t kMostUnfolded = 84;

static int64_t vectors_of(int64_t floats) {
  return pieces_of(floats, sparse_lanes());
}

// Rows of eight floats are aligned to half a cache line, so that fewer loads cross from one line to
// the next.
static int64_t pitch_of(const ConvolutionShape& shape) {
  constexpr int64_t kEight = 8;
  const int64_t width = shape.out_width(), height = shape.out_height();
  return width < kEight && vectors_of(height * kEight) == vectors_of(height * width) ? kEight
                                                                                     : width;
}

// Short rows are grouped where that takes no more vectors than copies for each column of the
// window, which are more to lay out and leave room for fewer channels in the cache.
static int64_t group_rows_of(const ConvolutionShape& shape, int64_t pitch, int64_t copied_pitch) {
  if (shape.out_width() > kSparseMargin) return 0;
  const int64_t rows = (kSparseMargin - shape.out_width()) / pitch + 1;
  const bool fits = vectors_of(pieces_of(shape.out_height(), rows) * kSparseMargin) <=
                    vectors_of(shape.out_height() * copied_pitch);
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
  return group_rows > 0 ? pieces_of(out_height, group_rows) * kSparseMargin
                        : vectors_of(out_height * pitch) * sparse_lanes();
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
