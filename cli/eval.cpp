#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/pruning/sparsity.h"

namespace remcaps::cli {
namespace {

std::vector<double> per_class_accuracy(const torch::Tensor& confusion) {
  std::vector<double> result;
  for (int64_t k = 0; k < confusion.size(0); ++k) {
    const double images = confusion[k].sum().item<double>();
    result.push_back(images > 0 ? confusion[k][k].item<double>() / images : std::nan(""));
  }
  return result;
}

std::string dead(int64_t count, int64_t of, const char* what) {
  return fmt::format("{} of {} {}", with_commas(count), with_commas(of), what);
}

void print_layers(const Sparsity& sparsity, const DeadStructures& structures) {
  fmt::print("\n{:<24} {:>12} {:>12} {:>9}\n", "layer", "parameters", "not zero", "sparsity");
  for (const auto& layer : sparsity.layers)
    fmt::print(
        "{:<24} {:>12} {:>12} {:>7.2f} %{}\n", layer.name, with_commas(layer.parameters),
        with_commas(layer.nonzero),
        100 * (1 - static_cast<double>(layer.nonzero) / static_cast<double>(layer.parameters)),
        layer.prunable ? "" : "  not prunable");
  fmt::print("without a weight: {}, {}, {}\n",
             dead(structures.dead_filters, structures.filters, "filters"),
             dead(structures.dead_blocks, structures.blocks, "matrices W_ij"),
             dead(structures.dead_capsules, structures.capsules, "child capsules"));
}

// One line per class. Columns of the confusion matrix have numbers if the names are too long.
void print_classes(const std::vector<std::string>& names, const torch::Tensor& confusion) {
  constexpr size_t kWidest = 20;  // more classes do not fit on a screen; --json has all
  constexpr size_t kColumn = 5;
  const auto accuracy = per_class_accuracy(confusion);
  const auto matrix = rows_of(confusion);
  const bool show_matrix = matrix.size() <= kWidest;
  const bool number = show_matrix && std::any_of(names.begin(), names.end(), [](const auto& name) {
                        return name.size() > kColumn;
                      });
  std::vector<std::string> labels;
  size_t width = std::string("class").size();
  for (size_t k = 0; k < matrix.size(); ++k) {
    labels.push_back(number ? fmt::format("{} = {}", names[k], k) : names[k]);
    width = std::max(width, labels.back().size());
  }
  fmt::print("\n{:>{}}  accuracy", "class", width);
  if (show_matrix) {
    fmt::print("  images predicted as each class\n{:{}}", "",
               width + std::string("  100.00 %").size());
    for (size_t k = 0; k < matrix.size(); ++k)
      fmt::print(" {:>{}}", number ? std::to_string(k) : names[k], kColumn);
  }
  fmt::print("\n");
  for (size_t k = 0; k < matrix.size(); ++k) {
    if (std::isnan(accuracy[k]))  // no image of it
      fmt::print("{:>{}}       -  ", labels[k], width);
    else
      fmt::print("{:>{}}  {:6.2f} %", labels[k], width, accuracy[k] * 100);
    if (show_matrix)
      for (const int64_t count : matrix[k]) fmt::print(" {:{}}", count, kColumn);
    fmt::print("\n");
  }
}

void print_measurement_table(const LoadedRun& run, const RunOptions& options,
                             const SplitMeasurement& measurement, const Sparsity& sparsity,
                             const std::string& note) {
  const Evaluation& result = measurement.plain;
  fmt::print("weights     {} (epoch {})\n", run.weights.string(), run.epoch + 1);
  fmt::print("model       {}\n", run.recipe.model);
  fmt::print("data        {}, {}: {} images\n", run.recipe.dataset.name, options.split,
             with_commas(result.samples));
  if (!note.empty()) fmt::print("note        {}\n", note);
  fmt::print("accuracy    {:.2f} %\n", result.accuracy * 100);
  fmt::print("loss        {:.6f}\n", result.loss);
  if (measurement.trees)
    fmt::print(
        "quantized   {:.2f} %, parse trees' entropy {:.4f} bits (remcaps entropy has more)\n",
        measurement.trees->accuracy_quantized * 100, measurement.trees->last().entropy);
  fmt::print("parameters  {}, not zero: {}, sparsity {:.2f} % ({:.2f} % of all)\n",
             with_commas(sparsity.parameters), with_commas(sparsity.nonzero),
             sparsity.published() * 100, sparsity.overall() * 100);

  std::vector<std::string> names;
  for (const std::string& name : run.class_names) names.push_back(printable(name));
  print_classes(names, result.confusion);
  if (sparsity.published() > 0) print_layers(sparsity, count_dead_structures(*run.model));
}

nlohmann::json layers_json(const Sparsity& sparsity) {
  nlohmann::json layers = nlohmann::json::array();
  for (const auto& layer : sparsity.layers)
    layers.push_back({{"layer", layer.name},
                      {"parameters", layer.parameters},
                      {"nonzero", layer.nonzero},
                      {"prunable", layer.prunable}});
  return layers;
}

void print_measurement_json(const LoadedRun& run, const RunOptions& options,
                            const SplitMeasurement& measurement, const Sparsity& sparsity,
                            const std::string& note) {
  const Evaluation& result = measurement.plain;
  const DeadStructures structures = count_dead_structures(*run.model);
  nlohmann::json json = {{"model", run.recipe.model},
                         {"dataset", run.recipe.dataset.name},
                         {"split", options.split},
                         {"precision", run.precision},
                         {"samples", result.samples},
                         {"accuracy", result.accuracy},
                         {"loss", result.loss},
                         {"parameters", sparsity.parameters},
                         {"parameters_nonzero", sparsity.nonzero},
                         {"sparsity", sparsity.published()},
                         {"weights", run.weights.string()},
                         {"epoch", run.epoch},
                         {"seed", run.recipe.train.seed},
                         {"classes", run.class_names},
                         {"accuracy_per_class", per_class_accuracy(result.confusion)},
                         {"confusion", rows_of(result.confusion)},
                         {"sparsity_overall", sparsity.overall()},
                         {"sparsity_layers", layers_json(sparsity)},
                         {"filters", structures.filters},
                         {"dead_filters", structures.dead_filters},
                         {"blocks", structures.blocks},
                         {"dead_blocks", structures.dead_blocks}};
  if (structures.capsules > 0) {
    json["capsules"] = structures.capsules;
    json["dead_capsules"] = structures.dead_capsules;
  }
  if (!note.empty()) json["data_note"] = note;
  if (measurement.trees) add_parse_trees(json, *measurement.trees);
  fmt::print("{}\n", json_text(json));
}

void run_eval(const RunOptions& options, const LoadedRun& run, ProcessGroup* group) {
  const DataSplits data = run.load_data(options.place.data);
  const Dataset& images = data.split(options.split);
  const BatchSource source = run.source(images, options.split);
  EvaluateOptions evaluation = options.evaluation(run, group);
  const Quantizers quantizers = run.recipe.quantize.quantizers(run.model->routing_layers().size());
  SplitMeasurement result;
  {
    Progress bar("evaluating", source.size());
    evaluation.on_progress = [&bar](int64_t done) { bar.update(done); };
    result = measure_split(*run.model, source, quantizers, evaluation, /*scores=*/true);
  }
  check(std::isfinite(result.plain.loss), "{}: the loss on {} is not finite", run.weights.string(),
        options.split);
  if (!writes(group)) return;
  const Sparsity sparsity = measure_sparsity(*run.model);
  (options.json ? print_measurement_json : print_measurement_table)(run, options, result, sparsity,
                                                                    images.note);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto* command =
      app.add_subcommand("eval", "Accuracy, loss and confusion matrix of a trained network");
  auto options = std::make_shared<RunOptions>("test");
  options->add_to(*command);
  command->footer("Example:\n  remcaps eval runs/fashion-mnist/eff-capsnet/seed-42 --json");
  command->callback([options] {
    options->with_run(
        [&](const LoadedRun& run, ProcessGroup* group) { run_eval(*options, run, group); });
  });
}

}  // namespace remcaps::cli
