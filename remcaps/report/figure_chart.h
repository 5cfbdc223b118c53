// Small charts as SVG: lines, points and bars with readable axes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remcaps/explain/svg.h"

namespace remcaps {

struct ChartAxis {
  std::string label = "";
  bool log = false;
  bool whole = false;  ///< its values are whole numbers, and so are its ticks
  std::optional<double> low = {}, high = {};  ///< unset: what the data need, on round numbers
};

/// A line through points; a NaN in y is a gap.
struct ChartLine {
  std::string name;
  std::vector<double> x, y;
  bool right = false;  ///< belongs to the right axis
  bool dashed = false;
  std::string colour = "";  ///< empty: the next one of the palette
};

/// One bar per category, beside those of the other sets.
struct ChartBars {
  std::string name;
  std::vector<double> values;
  std::string colour = "";
};

struct Chart {
  std::string title;
  ChartAxis x, y, right;
  std::vector<ChartLine> lines;
  std::vector<std::string> categories;  ///< of the bars; the x axis is theirs where there are any
  std::vector<ChartBars> bars;
  double width = 540, height = 330;
};

/// Wider than asked for where its title needs it.
Svg draw_chart(const Chart& chart);

/// The palette's colour for the n-th set of data: readable on light and dark pages.
std::string palette(size_t n);

/// Round numbers from at most `low` to at least `high`, about `count` of them, `least_step` or more
/// apart.
std::vector<double> nice_ticks(double low, double high, int count = 5, double least_step = 0);

/// Drawings of equal width in columns, under a common title that fits.
Svg arrange(const std::vector<Svg>& drawings, size_t columns, const std::string& title,
            const std::string& subtitle = "");

}  // namespace remcaps
