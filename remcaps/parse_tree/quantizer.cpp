#include "remcaps/parse_tree/quantizer.h"

#include <cmath>
#include <limits>
#include <utility>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

// A level index is stored in a byte.
constexpr int64_t kMaxLevels = 256;

// numpy.linspace(low, high, count), with the same rounding: it decides whether a coupling of
// exactly 0.1 lies above or below an edge at 0.1.
std::vector<double> linspace(double low, double high, int64_t count) {
  const double step = (high - low) / static_cast<double>(count - 1);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t k = 0; k < values.size(); ++k) {
    const volatile double product = static_cast<double>(k) * step;  // not fused with the addition
    values[k] = product + low;
  }
  values.back() = high;
  return values;
}

float round_down(double value) {
  const float nearest = static_cast<float>(value);
  return nearest > value ? std::nextafter(nearest, -std::numeric_limits<float>::infinity())
                         : nearest;
}

}  // namespace

Quantizer::Quantizer(std::vector<double> edges) : edges_(std::move(edges)) {
  for (size_t k = 0; k + 1 < edges_.size(); ++k)
    centres_.push_back(static_cast<float>((edges_[k] + edges_[k + 1]) / 2));
  for (size_t k = 1; k + 1 < edges_.size(); ++k) inner_edges_.push_back(round_down(edges_[k]));
}

Quantizer Quantizer::uniform(int64_t levels) {
  check(levels >= 2 && levels <= kMaxLevels, "quantizer: {} levels; expected 2 to {}", levels,
        kMaxLevels);
  const double half = 0.5 / static_cast<double>(levels - 1);
  return Quantizer(linspace(-half, 1 + half, levels + 1));
}

Quantizer Quantizer::bins(int64_t levels) {
  check(levels >= 2 && levels <= kMaxLevels, "quantizer: {} bins; expected 2 to {}", levels,
        kMaxLevels);
  return Quantizer(linspace(0, 1, levels + 1));
}

}  // namespace remcaps
