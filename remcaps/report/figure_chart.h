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
  bool whole = false;                         ///< ticks at whole numbers only
  std::optional<double> low = {}, high = {};  ///< unset: round numbers around the data
};

/// A line through points; a NaN in y is a gap.
struct ChartLine {
  std::string name;
  std::vector<double> x = {}, y = {};
  bool right = false;  ///< belongs to the right axis
  bool dashed = false;
  bool points = false;      ///< dots without a line between them
  bool hollow = false;      ///< these are rings
  std::string colour = "";  ///< empty: the next one of the palette
};

/// A set of bars: one per category, beside those of the other sets.
struct ChartBars {
  std::string name;
  std::vector<double> values;
  std::string colour = "";
};

struct Chart {
  std::string title;
  ChartAxis x, y, right;
  std::vector<ChartLine> lines;
  std::vector<std::string> categories;  ///< names of the bars; if given, the x axis shows them
  std::vector<ChartBars> bars;
  bool legend = true;  ///< false if arrange() draws one for several charts
  double width = 540, height = 330;
};

/// Wider than asked for if its title needs it.
Svg draw_chart(const Chart& chart);

/// The palette's colour for the n-th set of data: readable on light and dark pages.
std::string palette(size_t n);
/// After so many the colours come again.
constexpr size_t kPaletteSize = 10;

/// Round numbers from at most `low` to at least `high`, about `count` of them, `least_step` or more
/// apart.
std::vector<double> nice_ticks(double low, double high, int count = 5, double least_step = 0);

/// Drawings of equal width in columns, under a common title that fits and, if `legend` is given,
/// the legend of that chart.
Svg arrange(const std::vector<Svg>& drawings, size_t columns, const std::string& title,
            const std::string& subtitle = "", const Chart* legend = nullptr);

}  // namespace remcaps
