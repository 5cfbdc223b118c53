// The choice of K: the lowest number of levels per routing layer that accuracy does not notice.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/capsule/quantizer.h"

namespace remcaps {

/// One K on a layer's curve.
struct LevelPoint {
  int64_t levels = 0;
  double accuracy = 0;  ///< 0..1
  double entropy = 0;   ///< bits, of the layer the curve is of
  double keys = 0;      ///< median over classes
};

struct LevelCurve {
  std::string layer;
  std::vector<LevelPoint> points;
  /// The lowest K that keeps accuracy; 0 where none of those tried does (the layer is left alone).
  int64_t chosen = 0;
};

struct LevelChoice {
  double accuracy = 0;  ///< without quantization
  std::vector<LevelCurve> curves;

  std::vector<int64_t> levels() const;
};

struct LevelOptions {
  std::vector<int64_t> candidates = {};  ///< empty: 2 to 21
  double tolerance = 0;                  ///< accuracy may fall by this much (of 1)
  bool bins = false;                     ///< Quantizer::bins instead of Quantizer::uniform
};

/// The K's that will be tried, lowest first.
std::vector<int64_t> level_candidates(const LevelOptions& options);

/// Measures the network with these quantizers. The entropy and keys are those of layer `of`.
using LevelMeasurement =
    std::function<LevelPoint(const std::vector<std::optional<Quantizer>>& quantizers, size_t of)>;

/// Layer by layer, from the first to the last: the layers before keep the K chosen for them, those
/// behind stay unquantized. `accuracy` is the network's without quantization.
LevelChoice choose_levels(const std::vector<std::string>& layers, double accuracy,
                          const LevelMeasurement& measure, const LevelOptions& options);

}  // namespace remcaps
