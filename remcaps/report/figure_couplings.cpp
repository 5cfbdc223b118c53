// Keys per class and the distributions of couplings.
#include "remcaps/base/error.h"
#include "remcaps/explain/statistics.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/measured_trees.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

namespace {

constexpr int64_t kMostClasses = 10;  // small charts beyond that are no longer a figure

Figure distributions(const FigureOptions& options, const std::string& title) {
  const std::vector<ShownRun> runs = load_shown_runs(options);
  check_same_classes(runs);
  FigureTable table{{"run", "class", "level", "coupling", "children_by_mean", "couplings"}, {}};
  std::vector<Tensor> means;
  for (const ShownRun& run : runs) {
    check(run.class_quantizer().levels() == runs[0].class_quantizer().levels(),
          "{} and {} are quantized to {} and {} levels; their distributions have other bins",
          runs[0].label, run.label, runs[0].class_quantizer().levels(),
          run.class_quantizer().levels());
    CouplingStatistics statistics(run.class_quantizer());
    run.pass("couplings of " + run.label,
             [&](const Batch&, const Forward& forward) { statistics.add(forward); });
    means.push_back(statistics.histogram_of_means());
    const Tensor all = statistics.histogram();
    for (int64_t j = 0; j < all.size(0); ++j)
      for (int64_t k = 0; k < all.size(1); ++k)
        table.add(run.label, run.class_name(j), k,
                  static_cast<double>(run.class_quantizer().centres()[static_cast<size_t>(k)]),
                  means.back()[j][k].item<int64_t>(), all[j][k].item<int64_t>());
  }
  std::vector<Svg> drawings;
  Chart legend;  // the same one for all classes
  const Quantizer& quantizer = runs[0].class_quantizer();
  for (int64_t j = 0; j < std::min(runs[0].classes(), kMostClasses); ++j) {
    Chart chart;
    chart.title = runs[0].class_name(j);
    chart.width = 345;
    chart.height = 200;
    chart.legend = false;
    chart.y = {.label = "children", .log = true, .low = 0.7};
    chart.x.label = "mean coupling";
    for (const float centre : quantizer.centres())
      chart.categories.push_back(quantizer.levels() <= 21 ? fmt::format("{:.2g}", centre) : "");
    for (size_t r = 0; r < runs.size(); ++r) {
      ChartBars bars{runs[r].label, {}};
      for (int64_t k = 0; k < quantizer.levels(); ++k)
        bars.values.push_back(static_cast<double>(means[r][j][k].item<int64_t>()));
      chart.bars.push_back(std::move(bars));
    }
    drawings.push_back(draw_chart(chart));
    legend = std::move(chart);
  }
  return {title, arrange(drawings, 3, title, runs[0].data_line(), &legend), std::move(table)};
}

}  // namespace

Figure couplings_figure(const FigureOptions& options) {
  return distributions(options, "Distribution of the couplings to each class");
}

Figure couplings_epochs_figure(const FigureOptions& options) {
  expect_one_run(options, "couplings-epochs");
  const RunFolder folder = RunFolder::open(options.runs[0]);
  std::vector<std::string> kept;  // epoch-0000, epoch-0189: in order of their numbers
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".safetensors" && stem.rfind("epoch-", 0) == 0)
      kept.push_back(stem);
  }
  std::sort(kept.begin(), kept.end());
  check(!kept.empty(), "{}: no kept epochs (metrics.keep_epochs in the recipe names them)",
        folder.path().string());
  FigureOptions two = options;
  two.runs = {options.runs[0] + "@" + kept.front(),
              options.runs[0] + "@" + (kept.size() > 1 ? kept.back() : "last")};
  return distributions(two, "Distribution of the couplings to each class at two epochs");
}

Figure keys_figure(const FigureOptions& options) {
  const std::string title = "Number of parse trees of each class";
  const std::vector<MeasuredTrees> runs = measured_trees(options);
  FigureTable table{{"run", "class", "samples", "keys", "entropy"}, {}};
  Chart chart;
  chart.width = 760;
  chart.y.label = "parse trees";
  chart.categories = runs[0].class_names;
  for (const MeasuredTrees& run : runs) {
    check(run.class_names == chart.categories,
          "{} and {} do not have the same classes: they cannot be compared class by class",
          runs[0].label, run.label);
    ChartBars bars{fmt::format("{} ({:.2f} bits)", run.label, run.entropy), {}};
    for (size_t j = 0; j < run.keys_per_class.size(); ++j) {
      bars.values.push_back(static_cast<double>(run.keys_per_class[j]));
      table.add(run.label, chart.categories[j], run.samples_per_class[j], run.keys_per_class[j],
                run.entropy_per_class[j]);
    }
    chart.bars.push_back(std::move(bars));
  }
  return {title, arrange({draw_chart(chart)}, 1, title, runs[0].data_line), std::move(table)};
}

}  // namespace remcaps
