#include "remcaps/report/figure_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kSmall = 11;     // font size of everything but titles
constexpr double kPoint = 4.5;    // radius of a dot without a line
constexpr double kBarMargin = 6;  // between the y axis and the first bar

// The range of one axis, and where a value lies on it.
class Scale {
 public:
  /// The data reach from `low` to `high`; the pixels from `from` to `to`.
  Scale(const ChartAxis& axis, double low, double high, double from, double to)
      : log_(axis.log), from_(from), to_(to) {
    low = axis.low.value_or(low);
    high = axis.high.value_or(high);
    if (!(low <= high)) low = log_ ? 1 : 0, high = log_ ? 10 : 1;  // no data at all
    log_ ? set_decades(low, high) : set_round(axis, low, high);
  }

  double place(double value) const {
    const double clamped = log_ ? std::max(value, low_) : value;
    const double part = log_ ? std::log(clamped / low_) / std::log(high_ / low_)
                             : (clamped - low_) / (high_ - low_);
    return from_ + (to_ - from_) * std::clamp(part, 0.0, 1.0);
  }
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return low_; }

  std::string text(double tick) const {
    if (std::abs(tick) >= 1e6) return fmt::format("{:g}M", tick / 1e6);
    if (std::abs(tick) >= (log_ ? 1e3 : 1e4)) return fmt::format("{:g}k", tick / 1e3);
    if (log_) return fmt::format("{:g}", tick);
    const double step = ticks_.size() > 1 ? ticks_[1] - ticks_[0] : 1;
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    return fmt::format("{:.{}f}", tick == 0 ? 0.0 : tick, decimals);
  }

 private:
  void set_decades(double low, double high) {
    low_ = std::max(low, 1e-12);
    high_ = std::max(high, low_ * 10);
    for (double tick = std::pow(10, std::ceil(std::log10(low_) - 1e-9)); tick <= high_ * (1 + 1e-9);
         tick *= 10)
      ticks_.push_back(tick);
    if (ticks_.size() > 2) return;
    ticks_.clear();
    for (double decade = std::pow(10, std::floor(std::log10(low_))); decade <= high_; decade *= 10)
      for (const double factor : {1.0, 2.0, 5.0})
        if (factor * decade >= low_ * (1 - 1e-9) && factor * decade <= high_ * (1 + 1e-9))
          ticks_.push_back(factor * decade);
  }

  void set_round(const ChartAxis& axis, double low, double high) {
    if (high - low < 1e-12) {  // one value: make room around it
      low -= low == 0 ? 0 : std::abs(low) * 0.05;
      high += high == 0 ? 1 : std::abs(high) * 0.05;
    }
    ticks_ = nice_ticks(low, high, /*count=*/5, axis.whole ? 1 : 0);
    low_ = axis.low.value_or(ticks_.front());
    high_ = axis.high.value_or(ticks_.back());
    std::erase_if(ticks_, [&](double t) { return t < low_ - 1e-9 || t > high_ + 1e-9; });
  }

  bool log_;
  double from_, to_, low_ = 0, high_ = 1;
  std::vector<double> ticks_;
};

struct Extent {
  double low = kInf, high = -kInf;
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// The plotting area.
struct Area {
  double left, right, top, bottom;
};

std::string colour_of(const std::string& own, size_t n) {
  return own.empty() ? palette(n) : own;
}

void draw_point(Svg& svg, double x, double y, double radius, const std::string& colour, bool hollow,
                const std::string& title = "") {
  svg.circle(x, y, hollow ? radius - 1 : radius, hollow ? "none" : colour,
             {.colour = colour, .width = hollow ? 2 : 0.5}, title);
}

struct LegendEntry {
  std::string name, colour;
  bool bar = false, dashed = false, points = false, hollow = false;
};

std::vector<LegendEntry> legend_of(const Chart& chart) {
  std::vector<LegendEntry> entries;
  size_t n = 0;
  for (const ChartBars& bars : chart.bars)
    entries.push_back({bars.name, colour_of(bars.colour, n++), true});
  for (const ChartLine& line : chart.lines)
    entries.push_back(
        {line.name, colour_of(line.colour, n++), false, line.dashed, line.points, line.hollow});
  std::erase_if(entries, [](const LegendEntry& entry) { return entry.name.empty(); });
  return entries;
}

// Draws the legend in as many rows as it takes; returns the y below it.
double draw_legend(Svg& svg, const Chart& chart, double left, double right, double y) {
  const std::vector<LegendEntry> entries = legend_of(chart);
  if (entries.empty()) return y;
  double x = left;
  for (const LegendEntry& entry : entries) {
    const double width = 24 + text_width(entry.name, kSmall) + 16;
    if (x > left && x + width > right) {
      x = left;
      y += 17;
    }
    if (entry.bar)
      svg.rect(x + 3, y + 3, 11, 11, entry.colour);
    else if (entry.points)
      draw_point(svg, x + 11, y + 8.5, kPoint, entry.colour, entry.hollow);
    else
      svg.line(x, y + 8.5, x + 18, y + 8.5,
               {.colour = entry.colour, .width = 2.2, .dashed = entry.dashed});
    svg.text(x + 23, y + 12.5, entry.name, {.size = kSmall});
    x += width;
  }
  return y + 24;
}

void draw_y_axis(Svg& svg, const Area& area, const Scale& scale, const ChartAxis& axis, bool right,
                 const std::string& colour) {
  for (const double tick : scale.ticks()) {
    const double y = scale.place(tick);
    if (!right) svg.line(area.left, y, area.right, y, {.width = 1, .opacity = 0.13});
    svg.text(right ? area.right + 7 : area.left - 7, y + 4, scale.text(tick),
             {.size = kSmall,
              .anchor = right ? TextAnchor::kStart : TextAnchor::kEnd,
              .opacity = 0.8,
              .colour = colour});
  }
  if (!axis.label.empty())
    svg.text(right ? svg.width() - 10 : 16, (area.top + area.bottom) / 2, axis.label,
             {.size = kSmall + 1,
              .anchor = TextAnchor::kMiddle,
              .rotate = right ? 90.0 : -90.0,
              .colour = colour});
}

void draw_x_ticks(Svg& svg, const Area& area, const Scale& scale) {
  for (const double tick : scale.ticks()) {
    const double x = scale.place(tick);
    svg.line(x, area.bottom, x, area.bottom + 4, {.opacity = 0.5});
    svg.text(x, area.bottom + 17, scale.text(tick),
             {.size = kSmall, .anchor = TextAnchor::kMiddle, .opacity = 0.8});
  }
}

// The width that a category has; 0 without categories.
double slot_width(const Chart& chart, const Area& area) {
  if (chart.categories.empty()) return 0;
  return (area.right - area.left - kBarMargin) / static_cast<double>(chart.categories.size());
}

// Whether category names are slanted: they would run into each other otherwise.
bool slanted(const Chart& chart, double slot) {
  return std::any_of(chart.categories.begin(), chart.categories.end(),
                     [&](const std::string& name) { return text_width(name, kSmall) > slot - 4; });
}

double category_height(const Chart& chart, double slot) {
  double height = 18;
  if (slanted(chart, slot))
    for (const std::string& name : chart.categories)
      height = std::max(height, 12 + 0.6 * text_width(name, kSmall));
  return height;
}

// A tooltip's number: 2,000,000 or 0.125.
std::string value_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? with_commas(static_cast<int64_t>(value)) : fmt::format("{:g}", value);
}

void draw_bars(Svg& svg, const Chart& chart, const Area& area, const Scale& y) {
  const double slot = slot_width(chart, area);
  const double group = slot * 0.78, width = group / static_cast<double>(chart.bars.size());
  const double base = y.place(std::max(y.low(), 0.0));
  for (size_t c = 0; c < chart.categories.size(); ++c) {
    const double left = area.left + kBarMargin + slot * (static_cast<double>(c) + 0.11);
    for (size_t b = 0; b < chart.bars.size(); ++b) {
      const ChartBars& bars = chart.bars[b];
      check(bars.values.size() == chart.categories.size(), "chart {}: {} bars for {} categories",
            chart.title, bars.values.size(), chart.categories.size());
      const double value = bars.values[c];
      if (!std::isfinite(value) || (chart.y.log && value <= 0)) continue;
      const double top = std::min(y.place(value), base);
      svg.rect(left + width * static_cast<double>(b), top, std::max(0.5, width - 1),
               std::abs(base - y.place(value)), colour_of(bars.colour, b),
               fmt::format("{} {}: {}", bars.name, chart.categories[c], value_text(value)));
    }
    const double middle = area.left + kBarMargin + slot * (static_cast<double>(c) + 0.5);
    const bool slant = slanted(chart, slot);
    svg.text(middle + (slant ? 4 : 0), area.bottom + (slant ? 13 : 16), chart.categories[c],
             {.size = kSmall,
              .anchor = slant ? TextAnchor::kEnd : TextAnchor::kMiddle,
              .opacity = 0.85,
              .rotate = slant ? -35.0 : 0.0});
  }
}

void draw_line(Svg& svg, const ChartLine& line, const std::string& colour, const Scale& x,
               const Scale& y, bool dots) {
  check(line.x.size() == line.y.size(), "chart line {}: {} x for {} y", line.name, line.x.size(),
        line.y.size());
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < line.x.size(); ++i) {
    const bool drawn = std::isfinite(line.x[i]) && std::isfinite(line.y[i]);
    if (drawn)
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", x.place(line.x[i]),
                          y.place(line.y[i]));
    pen_down = drawn;
  }
  if (path.empty()) return;
  if (!line.points) svg.path(path, {.colour = colour, .width = 2, .dashed = line.dashed});
  if (!dots && !line.points) return;
  for (size_t i = 0; i < line.x.size(); ++i)
    if (std::isfinite(line.x[i]) && std::isfinite(line.y[i]))
      draw_point(svg, x.place(line.x[i]), y.place(line.y[i]), line.points ? kPoint : 2.8, colour,
                 line.hollow, fmt::format("{}: {:g}, {:g}", line.name, line.x[i], line.y[i]));
}

}  // namespace

std::string palette(size_t n) {
  static const std::array<std::string, kPaletteSize> colours = {
      "#3f78c7", "#d2524f", "#2f9e86", "#dd9a2f", "#8f6bb8",
      "#7b8794", "#c2649a", "#6a9a3a", "#3aa0c9", "#a5673f"};
  return colours[n % kPaletteSize];
}

std::vector<double> nice_ticks(double low, double high, int count, double least_step) {
  const double raw = std::max(high - low, 1e-12) / count;
  const double decade = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * decade;
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * decade * (1 + 1e-9)) {
      step = factor * decade;
      break;
    }
  step = std::max(step, least_step);
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::floor(low / step + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(high / step - 1e-9));
  for (int64_t k = first; k <= std::max(last, first + 1); ++k)
    ticks.push_back(static_cast<double>(k) * step);
  return ticks;
}

Svg draw_chart(const Chart& chart) {
  constexpr double kLeft = 62, kTitle = 13;
  const double width =
      std::max(chart.width, kLeft + text_width(chart.title, kTitle, /*bold=*/true) + 10);
  Svg svg(width, chart.height);
  Extent x, left, right;
  for (const ChartBars& bars : chart.bars)
    for (const double value : bars.values)
      if (!chart.y.log || value > 0) left.add(value);
  if (!chart.bars.empty() && !chart.y.log) left.add(0);
  bool has_right = false;
  for (const ChartLine& line : chart.lines) {
    has_right = has_right || line.right;
    for (const double value : line.x) x.add(value);
    for (const double value : line.y) (line.right ? right : left).add(value);
  }

  Area area{kLeft, width - (has_right ? 64 : 18), 14, 0};
  if (!chart.title.empty()) {
    svg.text(area.left, 22, chart.title, {.size = kTitle, .bold = true});
    area.top = 32;
  }
  if (chart.legend) area.top = draw_legend(svg, chart, area.left, width - 10, area.top);
  area.top += 4;
  const double slot = slot_width(chart, area);
  area.bottom = chart.height - (chart.x.label.empty() ? 10 : 30) -
                (chart.categories.empty() ? 18 : category_height(chart, slot));

  // If each axis has a single line, the axis takes the colour of its line.
  std::string left_colour = "currentColor", right_colour = "currentColor";
  if (has_right && chart.lines.size() == 2) {
    left_colour = colour_of(chart.lines[0].colour, 0);
    right_colour = colour_of(chart.lines[1].colour, 1);
    if (chart.lines[0].right) std::swap(left_colour, right_colour);
  }
  const Scale y(chart.y, left.low, left.high, area.bottom, area.top);
  draw_y_axis(svg, area, y, chart.y, false, left_colour);
  svg.line(area.left, area.bottom, area.right, area.bottom, {.opacity = 0.5});
  svg.line(area.left, area.top, area.left, area.bottom, {.opacity = 0.5});
  if (!chart.categories.empty()) {
    draw_bars(svg, chart, area, y);
  } else {
    const Scale across(chart.x, x.low, x.high, area.left, area.right);
    draw_x_ticks(svg, area, across);
    const Scale y2(chart.right, right.low, right.high, area.bottom, area.top);
    if (has_right) draw_y_axis(svg, area, y2, chart.right, true, right_colour);
    // Dots would only blur a long curve; all lines of a chart have them, or none has.
    const bool dots =
        std::all_of(chart.lines.begin(), chart.lines.end(),
                    [](const ChartLine& line) { return line.x.size() <= 40 && !line.points; });
    for (size_t i = 0; i < chart.lines.size(); ++i)
      draw_line(svg, chart.lines[i], colour_of(chart.lines[i].colour, i), across,
                chart.lines[i].right ? y2 : y, dots);
  }
  if (!chart.x.label.empty())
    svg.text((area.left + area.right) / 2, chart.height - 9, chart.x.label,
             {.size = kSmall + 1, .anchor = TextAnchor::kMiddle});
  return svg;
}

Svg arrange(const std::vector<Svg>& drawings, size_t columns, const std::string& title,
            const std::string& subtitle, const Chart* legend) {
  check(!drawings.empty(), "figure {} has no drawings", title);
  constexpr double kGap = 14, kMargin = 16, kTitle = 17, kSubtitle = 12;
  columns = std::clamp<size_t>(columns, 1, drawings.size());
  const size_t rows = (drawings.size() + columns - 1) / columns;
  double cell = 0;
  std::vector<double> heights(rows, 0);
  for (size_t i = 0; i < drawings.size(); ++i) {
    cell = std::max(cell, drawings[i].width());
    heights[i / columns] = std::max(heights[i / columns], drawings[i].height());
  }
  const double heading =
      std::max(text_width(title, kTitle, /*bold=*/true), text_width(subtitle, kSubtitle));
  const double width =
      std::max(static_cast<double>(columns) * (cell + kGap) + kGap, heading + 2 * kMargin);
  double head = (title.empty() ? 8 : 36) + (subtitle.empty() ? 0 : 20);
  Svg shared_legend(width, 0);
  if (legend != nullptr) head = draw_legend(shared_legend, *legend, kMargin, width - kMargin, head);
  double total = head + 8;
  for (const double height : heights) total += height + kGap;
  Svg svg(width, total);
  svg.place(shared_legend, 0, 0);
  if (!title.empty()) svg.text(kMargin, 28, title, {.size = kTitle, .bold = true});
  if (!subtitle.empty()) svg.text(kMargin, 48, subtitle, {.size = kSubtitle, .opacity = 0.75});
  double y = head;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns && r * columns + c < drawings.size(); ++c)
      svg.place(drawings[r * columns + c], kGap + static_cast<double>(c) * (cell + kGap), y);
    y += heights[r] + kGap;
  }
  return svg;
}

}  // namespace remcaps
