// Mean, deviation and median of a few numbers; 0 if there are none.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace remcaps {

inline double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// As numpy.std: of the population, not of a sample.
inline double standard_deviation(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const double centre = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - centre) * (value - centre);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

template <typename Number>
double median(std::vector<Number> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const auto upper = static_cast<double>(values[middle]);
  return values.size() % 2 == 1 ? upper : (static_cast<double>(values[middle - 1]) + upper) / 2;
}

}  // namespace remcaps
