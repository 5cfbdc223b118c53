#include "remcaps/explain/capsule_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace remcaps {

namespace {

constexpr double kLargestCell = 11, kGap = 0.9;  // pixels; cells between tiles

}  // namespace

// Rows of equal length if the number of types allows it, together about twice as wide as high.
int64_t tiles_per_row(const CapsuleGrid& grid) {
  const double wanted = std::sqrt(2.4 * static_cast<double>(grid.types * grid.height) /
                                  static_cast<double>(grid.width));
  int64_t nearest = 1;
  for (int64_t k = 1; k <= grid.types; ++k)
    if (grid.types % k == 0 && std::abs(k - wanted) < std::abs(nearest - wanted)) nearest = k;
  if (nearest >= wanted / 2 && nearest <= 2 * wanted) return nearest;
  return std::clamp<int64_t>(std::llround(wanted), 1, grid.types);
}

double cell_side(double activation, double largest_activation) {
  return 0.45 + 0.45 * std::sqrt(largest_activation > 0 ? activation / largest_activation : 0);
}

CapsuleTiles lay_out_tiles(int64_t capsules, std::vector<CapsuleGrid> grids, double left,
                           double right, double top) {
  constexpr int64_t kPlainRow = 48;
  int64_t places = 0;
  for (const CapsuleGrid& grid : grids) places += grid.types * grid.height * grid.width;
  CapsuleTiles laid;
  laid.have_places = places == capsules;
  if (!laid.have_places) {
    const int64_t width = std::min(capsules, kPlainRow);
    grids = {row_major_grid(1, (capsules + width - 1) / width, width)};
  }
  laid.cells.resize(static_cast<size_t>(capsules));
  laid.bottom = top;
  for (size_t g = 0; g < grids.size(); ++g) {
    const CapsuleGrid& grid = grids[g];
    const std::string map = grids.size() > 1 ? fmt::format("map {}, ", g) : "";
    const int64_t per_row = tiles_per_row(grid), rows = (grid.types + per_row - 1) / per_row;
    const double pitch = (right - left) / static_cast<double>(per_row);
    const double cell = std::min(kLargestCell, pitch / (static_cast<double>(grid.width) + kGap));
    const double width = cell * static_cast<double>(grid.width);
    const double height = cell * static_cast<double>(grid.height), gap = kGap * cell;
    for (int64_t type = 0; type < grid.types; ++type) {
      const double x = left + static_cast<double>(type % per_row) * (width + gap);
      const double y = laid.bottom + static_cast<double>(type / per_row) * (height + gap);
      const std::string name = laid.have_places ? fmt::format("{}type {}", map, type) : "capsules";
      laid.tiles.push_back({x, y, width, height, 0, name});
      for (int64_t m = 0; m < grid.height; ++m)
        for (int64_t n = 0; n < grid.width; ++n) {
          const int64_t capsule =
              grid.offset + type * grid.stride_type + m * grid.stride_y + n * grid.stride_x;
          if (capsule >= capsules) continue;  // the last row of capsules without a place
          ++laid.tiles.back().capsules;
          laid.cells[static_cast<size_t>(capsule)] = {
              laid.tiles.size() - 1, x + cell * (static_cast<double>(n) + 0.5),
              y + cell * (static_cast<double>(m) + 0.5), cell,
              laid.have_places ? fmt::format("{}, row {}, column {}", name, m, n)
                               : fmt::format("capsule {}", capsule)};
        }
    }
    laid.bottom += static_cast<double>(rows) * (height + gap);
  }
  return laid;
}

}  // namespace remcaps
