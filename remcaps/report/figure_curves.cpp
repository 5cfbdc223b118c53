// Entropy and accuracy against K, epoch and sparsity.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/measured_trees.h"
#include "remcaps/report/run_results.h"
#include "remcaps/runs/metrics.h"
#include "remcaps/training/launch.h"

namespace remcaps {

namespace {

constexpr const char* kAccuracyColour = "#3f78c7";  // as in the paper: accuracy blue, entropy red
constexpr const char* kEntropyColour = "#d2524f";

Chart accuracy_and_entropy(const std::string& title, const ChartAxis& x_axis,
                           const std::vector<double>& x, const std::vector<double>& accuracy,
                           const std::vector<double>& entropy) {
  Chart chart;
  chart.title = title;
  chart.x = x_axis;
  chart.y.label = "accuracy (%)";
  chart.right.label = "entropy (bits)";
  chart.right.low = 0.0;
  chart.lines = {
      {.name = "accuracy", .x = x, .y = accuracy, .colour = kAccuracyColour},
      {.name = "entropy", .x = x, .y = entropy, .right = true, .colour = kEntropyColour}};
  return chart;
}

}  // namespace

Figure levels_figure(const FigureOptions& options) {
  const std::string title = "Accuracy and entropy against the number of quantization levels";
  std::vector<int64_t> levels = options.levels;
  if (levels.empty()) levels = {2, 3, 4, 5, 6, 8, 11, 16, 21, 31};
  std::sort(levels.begin(), levels.end());
  check(levels.front() >= 2, "{} quantization levels; expected at least 2", levels.front());
  const std::vector<ShownRun> runs = load_shown_runs(options);
  FigureTable table{{"run", "levels", "accuracy", "entropy", "median_keys"}, {}};
  std::vector<Svg> drawings;
  for (const ShownRun& run : runs) {
    std::vector<double> x, accuracy, entropy;
    for (const int64_t k : levels) {
      // Layers the recipe leaves alone (levels: 0) stay so.
      Quantizers with = run.quantizers;
      for (auto& quantizer : with)
        if (quantizer)
          quantizer =
              run.run.recipe.quantize.form == "bins" ? Quantizer::bins(k) : Quantizer::uniform(k);
      const ParseTreeReport report = run.trees(with, fmt::format("{} K = {}", run.label, k));
      x.push_back(static_cast<double>(k));
      accuracy.push_back(100 * report.accuracy_quantized);
      entropy.push_back(report.last().entropy);
      table.add(run.label, k, report.accuracy_quantized, report.last().entropy,
                report.last().median_keys);
    }
    drawings.push_back(draw_chart(accuracy_and_entropy(
        run.label, {.label = "quantization levels K", .whole = true}, x, accuracy, entropy)));
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line()), std::move(table)};
}

Figure entropy_figure(const FigureOptions& options) {
  const std::string title = "Entropy and accuracy in the course of training";
  FigureTable table{{"run", "epoch", "sparsity", "accuracy_quantized", "entropy", "keys"}, {}};
  std::vector<TreeCurve> curves;
  std::vector<RunName> names;
  for (const std::string& argument : options.runs) {
    if (is_summary_file(argument)) {
      const RunResult run = read_result(argument);
      names.push_back({argument, run.recipe, run.seed});
      const auto curve = run.summary.find("curve");
      check(curve != run.summary.end(), "{}: has no curve (`remcaps collect` keeps that of a run)",
            argument);
      curves.push_back(tree_curve(*curve, argument));
    } else {
      const RunFolder folder = RunFolder::open(argument);
      const Recipe recipe = read_run_recipe(folder);
      names.push_back({argument, recipe.name, recipe.train.seed});
      curves.push_back(tree_curve(read_metrics(folder.metrics()), folder.metrics().string()));
    }
    check(!curves.back().epoch.empty(),
          "{}: no epoch has an entropy (metrics.every in the recipe was 0 or never due)", argument);
  }
  const std::vector<std::string> labels = run_labels(names);
  std::vector<Svg> drawings;
  for (size_t run = 0; run < labels.size(); ++run) {
    const TreeCurve& curve = curves[run];
    std::vector<double> epochs, pruned, percent;
    for (size_t i = 0; i < curve.epoch.size(); ++i) {
      epochs.push_back(curve.epoch[i] + 1);
      pruned.push_back(100 * curve.sparsity[i]);
      percent.push_back(100 * curve.accuracy_quantized[i]);
      table.add(labels[run], static_cast<int64_t>(curve.epoch[i]) + 1, curve.sparsity[i],
                curve.accuracy_quantized[i], curve.entropy[i], curve.keys[i]);
    }
    drawings.push_back(draw_chart(accuracy_and_entropy(
        labels[run], {.label = "epoch", .whole = true}, epochs, percent, curve.entropy)));
    if (pruned.back() > 0)
      drawings.push_back(draw_chart(accuracy_and_entropy("", {.label = "pruned parameters (%)"},
                                                         pruned, percent, curve.entropy)));
  }
  return {title, arrange(drawings, 2, title, "quantized couplings, test set"), std::move(table)};
}

Figure sparsity_figure(const FigureOptions& options) {
  const std::string title = "Entropy and accuracy against sparsity";
  const std::vector<MeasuredTrees> runs = measured_trees(options);
  FigureTable table{{"run", "pruning", "sparsity", "accuracy_quantized", "entropy", "median_keys"},
                    {}};
  std::map<std::string, std::multimap<double, const MeasuredTrees*>> by_strategy;
  for (const MeasuredTrees& run : runs) {
    by_strategy[run.strategy].insert({100 * run.sparsity, &run});
    table.add(run.label, run.strategy, run.sparsity, run.accuracy_quantized, run.entropy,
              run.median_keys);
  }
  std::vector<Svg> drawings;
  for (const auto& [strategy, points] : by_strategy) {
    std::vector<double> x, accuracy, entropy;
    for (const auto& [sparsity, run] : points) {
      x.push_back(sparsity);
      accuracy.push_back(100 * run->accuracy_quantized);
      entropy.push_back(run->entropy);
    }
    drawings.push_back(draw_chart(accuracy_and_entropy(
        "pruning: " + strategy, {.label = "pruned parameters (%)"}, x, accuracy, entropy)));
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line), std::move(table)};
}

}  // namespace remcaps
