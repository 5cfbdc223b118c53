#include "remcaps/parse_tree/levels.h"

#include <algorithm>
#include <numeric>

namespace remcaps {

namespace {
constexpr int64_t kLowest = 2, kHighest = 21;
}  // namespace

std::vector<int64_t> level_candidates(const LevelOptions& options) {
  std::vector<int64_t> candidates = options.candidates;
  if (candidates.empty()) {
    candidates.resize(kHighest - kLowest + 1);
    std::iota(candidates.begin(), candidates.end(), kLowest);
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  return candidates;
}

std::vector<int64_t> LevelChoice::levels() const {
  std::vector<int64_t> levels;
  for (const LevelCurve& curve : curves) levels.push_back(curve.chosen);
  return levels;
}

LevelChoice choose_levels(const std::vector<std::string>& layers, double accuracy,
                          const LevelMeasurement& measure, const LevelOptions& options) {
  const std::vector<int64_t> candidates = level_candidates(options);
  LevelChoice choice;
  choice.accuracy = accuracy;
  std::vector<std::optional<Quantizer>> quantizers(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    LevelCurve& curve = choice.curves.emplace_back();
    curve.layer = layers[layer];
    std::optional<Quantizer> chosen;
    for (const int64_t levels : candidates) {
      const Quantizer quantizer = Quantizer::of_form(options.form, levels);
      quantizers[layer] = quantizer;
      LevelPoint point = measure(quantizers, layer);
      point.levels = levels;
      curve.points.push_back(point);
      if (!chosen && point.accuracy >= accuracy - options.tolerance) {
        chosen = quantizer;
        curve.chosen = levels;
      }
    }
    quantizers[layer] = chosen;
  }
  return choice;
}

}  // namespace remcaps
