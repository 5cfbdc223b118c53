#include "remcaps/kernels/routing/layout_cpu.h"

namespace remcaps::kernels::cpu {
namespace {

// Transposes between [B, X] and [groups, X, lanes] in tiles that stay in the first-level cache
// while one image after the other is read or written in runs (rows of all images at once would fall
// into the same cache sets).
constexpr int64_t kTile = 64;

template <typename Move>
void for_each_tile(const Cut& cut, int64_t batch, int64_t size, const Move& move) {
  const int64_t tiles = (size + kTile - 1) / kTile;
  parallel_for(0, cut.groups * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / tiles, first = task % tiles * kTile;
      move(group, first, std::min(kTile, size - first),
           std::min(cut.lanes, batch - group * cut.lanes));
    }
  });
}

}  // namespace

void pack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to) {
  for_each_tile(cut, batch, size, [&](int64_t group, int64_t first, int64_t count, int64_t images) {
    float* tile = to + (group * size + first) * cut.lanes;
    for (int64_t image = 0; image < images; ++image) {
      const float* row = from + (group * cut.lanes + image) * size + first;
      for (int64_t x = 0; x < count; ++x) tile[x * cut.lanes + image] = row[x];
    }
    for (int64_t image = images; image < cut.lanes; ++image)
      for (int64_t x = 0; x < count; ++x) tile[x * cut.lanes + image] = 0;
  });
}

void unpack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to) {
  for_each_tile(cut, batch, size, [&](int64_t group, int64_t first, int64_t count, int64_t images) {
    const float* tile = from + (group * size + first) * cut.lanes;
    for (int64_t image = 0; image < images; ++image) {
      float* row = to + (group * cut.lanes + image) * size + first;
      for (int64_t x = 0; x < count; ++x) row[x] = tile[x * cut.lanes + image];
    }
  });
}

}  // namespace remcaps::kernels::cpu
