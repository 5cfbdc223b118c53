#include "remcaps/evaluation/split_trees.h"

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

nlohmann::json optional_number(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

ParseTreeReport collect(CapsNet& model, const BatchSource& source, EvaluateOptions options,
                        TreeCollector& collector, const Quantizers& quantizers, size_t frequent) {
  options.forward.trace = true;
  options.forward.quantizers = quantizers;
  options.on_batch = [&](const Batch& batch, const Forward& forward) {
    collector.add(forward, batch.labels);
  };
  evaluate(model, source, options);
  if (options.group != nullptr) collector.merge(*options.group);
  return collector.report(frequent);
}

}  // namespace

SplitMeasurement measure_split(CapsNet& model, const BatchSource& source,
                               const Quantizers& quantizers, EvaluateOptions options, bool scores,
                               size_t frequent) {
  SplitMeasurement result;
  if (quantizers.empty() || !quantizers.back()) {
    result.plain = evaluate(model, source, options);
    return result;
  }
  TreeCollector collector(model, quantizers);
  options.forward.trace = scores;
  if (scores)
    options.on_batch = [&](const Batch&, const Forward& forward) {
      collector.add_unquantized(forward);
    };
  options.second.emplace();
  options.second->trace = true;
  options.second->contributions = scores;
  options.second->quantizers = quantizers;
  options.on_second = [&](const Batch& batch, const Forward& forward) {
    collector.add(forward, batch.labels);
  };
  result.plain = evaluate(model, source, options);
  if (options.group != nullptr) collector.merge(*options.group);
  result.trees = collector.report(frequent);
  return result;
}

ParseTreeReport measure_parse_trees(CapsNet& model, const BatchSource& source,
                                    const Quantizers& quantizers, EvaluateOptions options,
                                    size_t frequent) {
  TreeCollector collector(model, quantizers);
  return collect(model, source, std::move(options), collector, quantizers, frequent);
}

LevelChoice find_levels(CapsNet& model, const BatchSource& source, const LevelOptions& levels,
                        const EvaluateOptions& options,
                        const std::function<void(int64_t, int64_t)>& on_pass) {
  std::vector<std::string> names;
  for (const RoutingLayer& layer : model.routing_layers()) names.push_back(layer.name);
  const int64_t candidates = static_cast<int64_t>(level_candidates(levels).size());
  const int64_t passes = 1 + candidates * static_cast<int64_t>(names.size());
  int64_t pass = 0;
  const auto announce = [&] {
    if (on_pass) on_pass(pass, passes);
    ++pass;
  };

  announce();
  const double accuracy = evaluate(model, source, options).accuracy;
  const auto measure = [&](const Quantizers& quantizers, size_t of) {
    announce();
    TreeCollector collector(model, quantizers, TreeCollector::LastLayer::kOptional);
    const ParseTreeReport report =
        collect(model, source, options, collector, quantizers, /*frequent=*/0);
    LevelPoint point;
    point.accuracy = report.accuracy_quantized;
    point.entropy = report.layers[of].entropy;
    point.keys = report.layers[of].median_keys;
    return point;
  };
  return choose_levels(names, accuracy, measure, levels);
}

void add_parse_trees(nlohmann::json& json, const ParseTreeReport& report) {
  const LayerTrees& last = report.last();
  json["accuracy_quantized"] = report.accuracy_quantized;
  json["entropy"] = last.entropy;
  json["entropy_std_over_classes"] = last.entropy_std;
  json["entropy_per_class"] = last.entropy_per_class;
  json["keys_per_class"] = last.keys_per_class;
  json["median_keys"] = last.median_keys;
  json["varying_per_class"] = last.varying_per_class;
  json["median_varying"] = last.median_varying;
  json["samples_per_class"] = report.samples_per_class;
  if (report.parts)
    json["effective_parts"] = {{"half", report.parts->half},
                               {"spread", report.parts->spread},
                               {"half_per_class", report.parts->half_per_class},
                               {"spread_per_class", report.parts->spread_per_class},
                               {"capsules", report.parts->capsules}};
  json["levels"] = nlohmann::json::array();
  json["layers"] = nlohmann::json::array();
  for (const LayerTrees& layer : report.layers) {
    json["levels"].push_back(layer.levels);
    nlohmann::json row = {{"layer", layer.layer},
                          {"levels", layer.levels},
                          {"couplings", layer.couplings},
                          {"clamped", layer.clamped},
                          {"t_score", optional_number(layer.t_score)},
                          {"d_score", optional_number(layer.d_score)}};
    if (layer.levels > 0) {
      row["entropy"] = layer.entropy;
      row["entropy_per_class"] = layer.entropy_per_class;
      row["keys_per_class"] = layer.keys_per_class;
      row["varying_per_class"] = layer.varying_per_class;
      row["key_couplings"] = layer.key_couplings;
      row["unverified_keys"] = layer.unverified_keys;
    }
    json["layers"].push_back(std::move(row));
  }
}

int64_t save_dictionary(const std::filesystem::path& path, const ParseTreeReport& report,
                        const Quantizer& quantizer, Metadata metadata) {
  std::vector<uint8_t> keys;
  std::vector<int64_t> counts, classes;
  int64_t children = 0, without_levels = 0;
  for (size_t k = 0; k < report.most_frequent.size(); ++k) {
    for (const FrequentTree& tree : report.most_frequent[k]) {
      if (tree.levels.empty()) {  // known by its hash only
        ++without_levels;
        continue;
      }
      children = static_cast<int64_t>(tree.levels.size());
      keys.insert(keys.end(), tree.levels.begin(), tree.levels.end());
      counts.push_back(tree.count);
      classes.push_back(static_cast<int64_t>(k));
    }
  }
  const int64_t trees = static_cast<int64_t>(counts.size());
  metadata["layer"] = report.last().layer;
  metadata["keys_without_levels"] = std::to_string(without_levels);
  save_safetensors(path,
                   {{"keys", torch::tensor(keys, torch::kUInt8).view({trees, children})},
                    {"counts", torch::tensor(counts, torch::kLong)},
                    {"classes", torch::tensor(classes, torch::kLong)},
                    {"levels", torch::tensor(quantizer.centres())}},
                   metadata);
  return trees;
}

}  // namespace remcaps
