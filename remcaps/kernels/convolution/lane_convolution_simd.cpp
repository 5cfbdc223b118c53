#include "remcaps/kernels/convolution/lane_convolution.h"

#include <algorithm>
#include <utility>

#include "remcaps/kernels/simd/buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "remcaps/kernels/convolution/lane_convolution_simd.cpp"
#include "remcaps/kernels/simd/for_each_target.h"

#include "remcaps/kernels/simd/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace remcaps::kernels::REMCAPS_LANES {

using simd::LaneRows;
using simd::LaneRun;

constexpr bool kHasImageLanes = kRegisterLanes == cpu::kLaneImages;

bool has_image_lanes_of() {
  return kHasImageLanes;
}

// Columns first to first + kColumns - 1 of kRows rows: their sums are in registers.
template <int kRows, int kColumns, int kStep>
void add_columns(const LaneRows& s, int64_t first) {
  const float* map = s.map + first * kStep * kRegisterLanes;
  const int64_t step = s.row_step, row = s.out_width * kRegisterLanes;
  float* all_sums = s.sums + first * kRegisterLanes;
  const Register zero = set_register(0.0F);
  for (const LaneRun* run = s.runs; run < s.runs + s.count; ++run) {
    float* to = all_sums + run->filter * s.filter_step;
    const Register bias = set_register(s.bias == nullptr ? 0.0F : s.bias[run->filter]);
    Register sums[kRows][kColumns];
    for (int y = 0; y < kRows; ++y)
      for (int x = 0; x < kColumns; ++x)
        sums[y][x] = s.fresh ? bias : load_register(to + y * row + x * kRegisterLanes);
    for (uint32_t n = run->begin; n < run->end; ++n) {
      const Register weight = set_register(s.values[n]);
      const float* pixels = map + s.starts[n];
      for (int y = 0; y < kRows; ++y, pixels += step)
        for (int x = 0; x < kColumns; ++x)
          sums[y][x] = fma(weight, load_register(pixels + x * kStep * kRegisterLanes), sums[y][x]);
    }
    for (int y = 0; y < kRows; ++y)
      for (int x = 0; x < kColumns; ++x)
        store_register(s.relu ? max(sums[y][x], zero) : sums[y][x],
                       to + y * row + x * kRegisterLanes);
  }
}

constexpr int kMostColumns = 6;  // 24 sums in four rows

template <int kRows, int kStep, int... kBelow>
void add_rows_of(const LaneRows& s, std::integer_sequence<int, kBelow...>) {
  const int64_t pieces = pieces_of(s.out_width, kMostColumns);
  for (int64_t piece = 0, done = 0; piece < pieces; ++piece) {
    const int64_t size = pieces_of(s.out_width - done, pieces - piece);
    ((size == kBelow + 1 ? add_columns<kRows, kBelow + 1, kStep>(s, done) : void()), ...);
    done += size;
  }
}

template <int kStep, int... kBelow>
void add_lane_rows(const LaneRows& s, std::integer_sequence<int, kBelow...>) {
  ((s.rows == kBelow + 1
        ? add_rows_of<kBelow + 1, kStep>(s, std::make_integer_sequence<int, kMostColumns>())
        : void()),
   ...);
}

void add_lane_runs_of(const LaneRows& s) {
  if constexpr (kHasImageLanes) {
    constexpr auto kCounts = std::make_integer_sequence<int, simd::kMostLaneRows>();
    s.stride_x == 1 ? add_lane_rows<1>(s, kCounts) : add_lane_rows<2>(s, kCounts);
  }
}

}  // namespace remcaps::kernels::REMCAPS_LANES
HWY_AFTER_NAMESPACE();

#if !defined(REMCAPS_HIGHWAY) || HWY_ONCE
namespace remcaps::kernels::simd {

#ifdef REMCAPS_HIGHWAY
HWY_EXPORT(has_image_lanes_of);
HWY_EXPORT(add_lane_runs_of);
#endif

bool has_image_lanes() {
  return REMCAPS_DISPATCH(has_image_lanes_of)();
}

void add_lane_runs(const LaneRows& rows) {
  REMCAPS_DISPATCH(add_lane_runs_of)(rows);
}

}  // namespace remcaps::kernels::simd
#endif
