// The choice of K: the lowest number of levels of each routing layer that keeps the accuracy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

/// One K on a layer's curve.
struct LevelPoint {
  int64_t levels = 0;
  double accuracy = 0;  ///< 0..1
  double entropy = 0;   ///< bits, of the curve's layer
  double keys = 0;      ///< median over classes
};

struct LevelCurve {
  std::string layer;
  std::vector<LevelPoint> points;
  /// The lowest K that keeps the accuracy; 0 if none that was tried does (the layer is then not
  /// quantized).
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
  std::string form = "uniform";          ///< of the quantizers, see Quantizer::of_form
};

/// The values of K that will be tried, lowest first.
std::vector<int64_t> level_candidates(const LevelOptions& options);

/// Measures the network with these quantizers; entropy and keys of layer `of`.
using LevelMeasurement =
    std::function<LevelPoint(const std::vector<std::optional<Quantizer>>& quantizers, size_t of)>;

/// Chooses layer by layer, from the first to the last. Meanwhile the layers before keep the K
/// chosen for them, and the layers behind are not quantized. `accuracy` is the network's without
/// quantization.
LevelChoice choose_levels(const std::vector<std::string>& layers, double accuracy,
                          const LevelMeasurement& measure, const LevelOptions& options);

}  // namespace remcaps
