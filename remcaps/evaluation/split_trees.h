// Parse trees of a trained network over a split, and the choice of K.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "remcaps/evaluation/evaluate.h"
#include "remcaps/evaluation/tree_collector.h"
#include "remcaps/parse_tree/levels.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps {

using Quantizers = std::vector<std::optional<Quantizer>>;  ///< one per routing layer

/// A split measured without and with quantized couplings.
struct SplitMeasurement {
  Evaluation plain;
  std::optional<ParseTreeReport> trees;  ///< nothing if the last routing layer has no quantizer
};

/// One pass over the split. Each batch is routed twice, without and with quantized couplings.
///   scores    also compute the T- and D-score, from the couplings that are not quantized, and the
///             effective parts of the quantized answers
///   frequent  how many trees of each class to list
/// The function sets forward, second, on_batch and on_second of the options.
SplitMeasurement measure_split(CapsNet& model, const BatchSource& source,
                               const Quantizers& quantizers, EvaluateOptions options, bool scores,
                               size_t frequent = 0);

/// One pass with quantized couplings: dictionaries and quantized accuracy.
ParseTreeReport measure_parse_trees(CapsNet& model, const BatchSource& source,
                                    const Quantizers& quantizers, EvaluateOptions options,
                                    size_t frequent = 0);

/// The lowest K of each routing layer that does not lower the accuracy on `source`, with the whole
/// curve. `on_pass` is called before every pass with its number, from 0, and the number of passes.
LevelChoice find_levels(CapsNet& model, const BatchSource& source, const LevelOptions& levels,
                        const EvaluateOptions& options,
                        const std::function<void(int64_t, int64_t)>& on_pass = {});

/// Adds accuracy_quantized, levels, entropy, entropy_per_class, keys_per_class and so on to `json`,
/// as in summary.json and in the output of `eval` and `entropy`.
void add_parse_trees(nlohmann::json& json, const ParseTreeReport& report);

/// Writes the dictionary of the last routing layer as safetensors: keys [M, I] as level indices,
/// counts [M], classes [M] and the K levels. Returns M, the number of trees. `metadata` is written
/// too. The report must list all trees (`frequent` = SIZE_MAX).
int64_t save_dictionary(const std::filesystem::path& path, const ParseTreeReport& report,
                        const Quantizer& quantizer, Metadata metadata);

}  // namespace remcaps
