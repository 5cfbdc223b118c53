// Entropy and accuracy against K, epoch and sparsity.
#include <algorithm>
#include <cmath>
#include <functional>
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
        if (quantizer) quantizer = Quantizer::of_form(run.run.recipe.quantize.form, k);
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

namespace {

// What a chart of the Pareto figure has on its x axis: less is better.
struct Cost {
  std::string label;
  bool log;
  std::function<std::optional<double>(const MeasuredTrees&)> of;
};

// The runs that no other run beats: none is as accurate at a lower cost, or more accurate at the
// same.
ChartLine front_of(std::vector<std::pair<double, double>> points) {
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  ChartLine front{.name = "no run is better in both", .dashed = true, .colour = "currentColor"};
  for (const auto& [cost, accuracy] : points) {
    if (!front.y.empty() && accuracy <= front.y.back()) continue;
    front.x.push_back(cost);
    front.y.push_back(accuracy);
  }
  return front;
}

}  // namespace

Figure pareto_figure(const FigureOptions& options) {
  const std::string title = "Accuracy against what the answers cost";
  const std::vector<MeasuredTrees> runs = measured_trees(options, /*parts=*/true);
  for (const MeasuredTrees& run : runs)
    check(run.dataset == runs[0].dataset,
          "figure pareto: {} is of {}, {} of {}; expected one data set", runs[0].label,
          runs[0].dataset, run.label, run.dataset);
  const std::vector<Cost> costs = {
      {"entropy of the parse trees (bits)", false, [](const auto& run) { return run.entropy; }},
      {"effective parts of an answer", false, [](const auto& run) { return run.effective_parts; }},
      {"capsules left", true, [](const auto& run) { return run.capsules_left; }},
      {"weights left", true, [](const auto& run) { return run.parameters_left; }}};
  FigureTable table{{"run", "accuracy_quantized", "entropy", "effective_parts", "capsules_left",
                     "parameters_left"},
                    {}};
  std::vector<std::string> recipes;
  for (const MeasuredTrees& run : runs) {
    const auto number = [](const std::optional<double>& value) {
      return value.value_or(std::nan(""));
    };
    table.add(run.label, run.accuracy_quantized, run.entropy, number(run.effective_parts),
              number(run.capsules_left), number(run.parameters_left));
    if (std::find(recipes.begin(), recipes.end(), run.recipe) == recipes.end())
      recipes.push_back(run.recipe);
  }
  std::vector<Svg> drawings;
  Chart legend;
  for (const Cost& cost : costs) {
    Chart chart;
    chart.x = {.label = cost.label, .log = cost.log};
    if (!cost.log) chart.x.low = 0.0;
    chart.y.label = "accuracy, quantized (%)";
    chart.legend = false;
    std::vector<std::pair<double, double>> points;
    for (size_t r = 0; r < recipes.size(); ++r) {
      ChartLine of_recipe{.name = recipes[r].substr(recipes[r].rfind('/') + 1),
                          .points = true,
                          .hollow = r >= kPaletteSize,
                          .colour = palette(r)};
      for (const MeasuredTrees& run : runs) {
        const std::optional<double> x = cost.of(run);
        if (run.recipe != recipes[r] || !x) continue;
        of_recipe.x.push_back(*x);
        of_recipe.y.push_back(100 * run.accuracy_quantized);
        points.emplace_back(of_recipe.x.back(), of_recipe.y.back());
      }
      chart.lines.push_back(std::move(of_recipe));
    }
    if (points.empty()) continue;
    if (cost.log) {  // room for the dots at both ends
      const auto [least, most] = std::minmax_element(points.begin(), points.end());
      chart.x.low = 0.8 * least->first;
      chart.x.high = 1.25 * most->first;
    }
    chart.lines.insert(chart.lines.begin(), front_of(points));
    legend = chart;
    drawings.push_back(draw_chart(chart));
  }
  return {title, arrange(drawings, 2, title, runs[0].data_line + ", quantized couplings", &legend),
          std::move(table)};
}

}  // namespace remcaps
