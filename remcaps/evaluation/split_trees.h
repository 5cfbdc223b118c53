// Parse trees of a trained network: measured over a split, and the choice of K for it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "remcaps/evaluation/evaluate.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/parse_tree/levels.h"

namespace remcaps {

using Quantizers = std::vector<std::optional<Quantizer>>;  ///< one per routing layer

/// A split with the network as it is, and with quantized couplings.
struct SplitMeasurement {
  Evaluation plain;
  std::optional<ParseTreeReport> trees;  ///< nothing where the last routing layer has no quantizer
};

/// One pass over the split, each batch routed with the couplings as they are and quantized.
/// `frequent`: how many trees of each class to list. `scores`: T- and D-score too, which need the
/// couplings as they are. The options' forward passes and what hears of them are set here.
SplitMeasurement measure_split(CapsNet& model, const BatchSource& source,
                               const Quantizers& quantizers, EvaluateOptions options, bool scores,
                               size_t frequent = 0);

/// One pass, with quantized couplings: the dictionaries and quantized accuracy.
ParseTreeReport measure_parse_trees(CapsNet& model, const BatchSource& source,
                                    const Quantizers& quantizers, EvaluateOptions options,
                                    size_t frequent = 0);

/// The lowest K per routing layer that accuracy on `source` does not notice, with the whole curve.
/// `on_pass` hears of every pass before it starts: its number from 0, and how many there will be.
LevelChoice find_levels(CapsNet& model, const BatchSource& source, const LevelOptions& levels,
                        const EvaluateOptions& options,
                        const std::function<void(int64_t, int64_t)>& on_pass = {});

/// accuracy_quantized, levels, entropy, entropy_per_class, keys_per_class and so on, as `eval`,
/// `entropy` and summary.json give them. Adds to `json`.
void add_parse_trees(nlohmann::json& json, const ParseTreeReport& report);

}  // namespace remcaps
