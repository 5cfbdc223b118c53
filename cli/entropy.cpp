#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/torch/safetensors.h"

namespace remcaps::cli {
namespace {

struct EntropyCommand {
  RunOptions run{"test"};
  std::string levels;
  std::string save;
  int64_t trees = 0;

  bool searches() const { return levels == "auto"; }
};

struct Result {
  Evaluation plain;
  ParseTreeReport trees;
  Sparsity sparsity;
};

// K of each layer, chosen on the validation split.
std::vector<int64_t> found_levels(const EntropyCommand& command, const LoadedRun& run,
                                  const DataSplits& data, ProcessGroup* group) {
  const BatchSource validation = run.source(data, "validation");
  const LevelChoice choice =
      choose_with_progress(run, validation, LevelOptions{}, command.run.evaluation(run, group));
  check(choice.curves.back().chosen > 0,
        "--levels auto: no K up to {} keeps the validation accuracy of {:.2f} %; give one",
        choice.curves.back().points.back().levels, choice.accuracy * 100);
  return choice.levels();
}

// How often each level occurs in a tree: "1138 x 0.1, 14 x 0.2".
std::string describe(const FrequentTree& tree, const Quantizer& quantizer) {
  if (tree.levels.empty()) return "(levels not kept)";
  std::map<uint8_t, int64_t> counts;
  for (const uint8_t level : tree.levels) ++counts[level];
  std::vector<std::string> parts;
  for (const auto& [level, count] : counts)
    parts.push_back(fmt::format("{} x {:.3g}", count, quantizer.centres()[level] + 0.0f));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string score(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

void print_text(const LoadedRun& run, const EntropyCommand& command, const Result& result,
                const Quantizer& last_quantizer) {
  const ParseTreeReport& trees = result.trees;
  fmt::print("weights             {} (epoch {})\n", run.weights.string(), run.epoch + 1);
  fmt::print("data                {}, {}: {} images\n", run.recipe.dataset.name, command.run.split,
             with_commas(trees.samples));
  fmt::print("accuracy            {:.2f} %\n", result.plain.accuracy * 100);
  fmt::print("quantized accuracy  {:.2f} %\n", trees.accuracy_quantized * 100);
  fmt::print("entropy             {:.4f} bits (standard deviation over classes {:.4f})\n",
             trees.last().entropy, trees.last().entropy_std);
  fmt::print("keys                {:g} (median over classes)\n", trees.last().median_keys);
  fmt::print("varying couplings   {:g} of {} (median over classes)\n", trees.last().median_varying,
             with_commas(trees.last().key_couplings));
  if (trees.parts)
    fmt::print(
        "effective parts     {:.1f} of {} capsules carry half of the evidence (spread {:.1f})\n",
        trees.parts->half, with_commas(trees.parts->capsules), trees.parts->spread);
  fmt::print("sparsity            {:.2f} %, {} parameters left\n",
             result.sparsity.published() * 100, with_commas(result.sparsity.nonzero));

  fmt::print("\n{:<16} {:>4} {:>9} {:>9} {:>8} {:>8}  clamped\n", "routing layer", "K", "entropy",
             "keys", "T-score", "D-score");
  for (const LayerTrees& layer : trees.layers) {
    const bool quantized = layer.levels > 0;
    fmt::print("{:<16} {:>4} {:>9} {:>9} {:>8} {:>8}  {} of {}\n", layer.layer,
               quantized ? fmt::format("{}", layer.levels) : "-",
               quantized ? fmt::format("{:.4f}", layer.entropy) : "-",
               quantized ? fmt::format("{:g}", layer.median_keys) : "-", score(layer.t_score),
               score(layer.d_score), with_commas(layer.clamped), with_commas(layer.couplings));
  }

  size_t width = 5;
  std::vector<std::string> names;
  for (const std::string& name : run.class_names) {
    names.push_back(printable(name));
    width = std::max(width, names.back().size());
  }
  fmt::print("\n{:>{}} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "class", width, "predicted", "keys",
             "varying", "entropy", "parts", "spread");
  for (size_t k = 0; k < names.size(); ++k) {
    const auto parts = [&](const std::vector<double>& of_class) {
      return std::isfinite(of_class[k]) ? fmt::format("{:.1f}", of_class[k]) : "-";
    };
    fmt::print("{:>{}} {:>9} {:>9} {:>9} {:>9.4f} {:>9} {:>9}\n", names[k], width,
               trees.samples_per_class[k], trees.last().keys_per_class[k],
               trees.last().varying_per_class[k], trees.last().entropy_per_class[k],
               parts(trees.parts->half_per_class), parts(trees.parts->spread_per_class));
    const size_t shown =
        std::min(trees.most_frequent[k].size(), static_cast<size_t>(command.trees));
    for (size_t t = 0; t < shown; ++t)
      fmt::print("{:>{}} {:>9}   {}\n", "", width, trees.most_frequent[k][t].count,
                 describe(trees.most_frequent[k][t], last_quantizer));
  }
}

void print_json(const LoadedRun& run, const EntropyCommand& command, const Result& result) {
  nlohmann::json json = {{"model", run.recipe.model},
                         {"dataset", run.recipe.dataset.name},
                         {"split", command.run.split},
                         {"samples", result.plain.samples},
                         {"accuracy", result.plain.accuracy},
                         {"loss", result.plain.loss},
                         {"parameters", result.sparsity.parameters},
                         {"parameters_nonzero", result.sparsity.nonzero},
                         {"sparsity", result.sparsity.published()},
                         {"weights", run.weights.string()},
                         {"epoch", run.epoch},
                         {"seed", run.recipe.train.seed},
                         {"classes", run.class_names}};
  add_parse_trees(json, result.trees);
  if (command.trees > 0) {
    for (const auto& of_class : result.trees.most_frequent) {
      auto list = nlohmann::json::array();
      for (size_t t = 0; t < std::min(of_class.size(), static_cast<size_t>(command.trees)); ++t)
        list.push_back({{"count", of_class[t].count}, {"levels", of_class[t].levels}});
      json["most_frequent"].push_back(std::move(list));
    }
  }
  fmt::print("{}\n", json_text(json));
}

void run_entropy(const EntropyCommand& command, std::vector<int64_t> levels, const LoadedRun& run,
                 ProcessGroup* group) {
  run.model->require_routing();
  if (writes(group) && !command.save.empty()) prepare_output(command.save);
  const DataSplits data = run.load_data(command.run.place.data);
  if (command.searches()) levels = found_levels(command, run, data, group);
  const Quantizers quantizers = quantizers_of(run, levels);
  const BatchSource source = run.source(data, command.run.split);
  EvaluateOptions evaluation = command.run.evaluation(run, group);
  Result result;
  result.sparsity = measure_sparsity(*run.model);
  {
    Progress bar("parse trees", source.size());
    evaluation.on_progress = [&bar](int64_t done) { bar.update(done); };
    const size_t trees = command.save.empty() ? static_cast<size_t>(command.trees) : SIZE_MAX;
    SplitMeasurement measured =
        measure_split(*run.model, source, quantizers, evaluation, /*scores=*/true, trees);
    check(measured.trees.has_value(),
          "the last routing layer of {} is not quantized (its K is 0): give --levels",
          run.weights.string());
    result.plain = std::move(measured.plain);
    result.trees = std::move(*measured.trees);
  }
  if (!writes(group)) return;
  if (!command.save.empty()) {
    const int64_t trees = save_dictionary(command.save, result.trees, *quantizers.back(),
                                          {{"weights", run.weights.string()},
                                           {"dataset", run.recipe.dataset.name},
                                           {"split", command.run.split}});
    say("{}: {} parse trees", command.save, with_commas(trees));
  }
  if (command.run.json)
    print_json(run, command, result);
  else
    print_text(run, command, result, *quantizers.back());
}

}  // namespace

void add_entropy(CLI::App& app) {
  auto* command = app.add_subcommand(
      "entropy", "Parse trees of a trained network: quantized accuracy, dictionary, entropy");
  auto options = std::make_shared<EntropyCommand>();
  options->run.add_to(*command);
  command->add_option("--levels", options->levels,
                      "K of the quantizer: one, one per routing layer (11,6; 0 leaves a layer "
                      "alone), or auto: the lowest that validation accuracy does not notice "
                      "(default: the recipe's)");
  command->add_option("--trees", options->trees, "Print the N most frequent trees of each class")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--save", options->save, "Write the dictionary to a safetensors file");
  command->footer(
      "Example:\n  remcaps entropy runs/mnist/dr-capsnet-rem/seed-42 --levels 11 --json");
  command->callback([options] {
    const bool given = !options->levels.empty() && !options->searches();
    const auto levels = given ? parse_levels(options->levels) : std::vector<int64_t>();
    options->run.with_run([&](const LoadedRun& run, ProcessGroup* group) {
      run_entropy(*options, levels, run, group);
    });
  });
}

}  // namespace remcaps::cli
