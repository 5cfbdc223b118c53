// The network as a diagram, and REM's stages on a real run.
#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/explain/statistics.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

namespace {

constexpr double kBoxWidth = 168, kBoxHeight = 74, kBoxGap = 34;
constexpr size_t kBoxesPerRow = 5;

void draw_arrow(Svg& svg, double x1, double y1, double x2, double y2) {
  svg.line(x1, y1, x2, y2, {.width = 1.4, .opacity = 0.6});
  const bool down = y2 > y1;
  svg.path(down ? fmt::format("M{} {}L{} {}L{} {}", x2 - 4, y2 - 6, x2, y2, x2 + 4, y2 - 6)
                : fmt::format("M{} {}L{} {}L{} {}", x2 - 6, y2 - 4, x2, y2, x2 - 6, y2 + 4),
           {.width = 1.4, .opacity = 0.6});
}

Svg draw_layers(const std::vector<LayerCost>& layers, const std::vector<std::string>& routed) {
  const size_t rows = (layers.size() + kBoxesPerRow - 1) / kBoxesPerRow;
  const size_t columns = std::min(kBoxesPerRow, layers.size());
  const double row_height = kBoxHeight + 38;
  Svg svg(static_cast<double>(columns) * (kBoxWidth + kBoxGap) - kBoxGap + 16,
          static_cast<double>(rows - 1) * row_height + kBoxHeight + 12);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost& layer = layers[i];
    const bool routing = std::find(routed.begin(), routed.end(), layer.name) != routed.end();
    const double x = 8 + static_cast<double>(i % kBoxesPerRow) * (kBoxWidth + kBoxGap);
    const double y = 6 + static_cast<double>(i / kBoxesPerRow) * row_height;
    const std::string colour = palette(routing ? 1 : 0);
    svg.rect(x, y, kBoxWidth, kBoxHeight, colour, "", 0.14);
    svg.frame(x, y, kBoxWidth, kBoxHeight, {.colour = colour, .width = 1.4});
    svg.text(x + 10, y + 20, layer.name, {.size = 13, .bold = true});
    // A long kind is set smaller: it must stay inside its box.
    const double size = std::min(11.0, 11.0 * (kBoxWidth - 18) / text_width(layer.kind, 11));
    svg.text(x + 10, y + 37, layer.kind, {.size = size, .opacity = 0.8});
    svg.text(x + 10, y + 52, fmt::format("{}", fmt::join(layer.output, " \u00d7 ")), {.size = 11});
    svg.text(x + 10, y + 67, with_commas(layer.parameters) + " parameters",
             {.size = 10, .opacity = 0.75});
    if (i + 1 == layers.size()) break;
    if ((i + 1) % kBoxesPerRow != 0) {
      draw_arrow(svg, x + kBoxWidth, y + kBoxHeight / 2, x + kBoxWidth + kBoxGap - 2,
                 y + kBoxHeight / 2);
    } else {  // to the beginning of the next row
      const double middle = y + kBoxHeight + 19, first = 8 + kBoxWidth / 2;
      svg.path(fmt::format("M{} {}V{}H{}", x + kBoxWidth / 2, y + kBoxHeight, middle, first),
               {.width = 1.4, .opacity = 0.6});
      draw_arrow(svg, first, middle, first, y + row_height - 2);
    }
  }
  return svg;
}

}  // namespace

Figure architecture_figure(const FigureOptions& options) {
  expect_one_run(options, "architecture");
  const RunArgument which = parse_run_argument(options.runs[0]);
  const LoadedRun run = load_run(which.path, options.device, which.checkpoint);
  FigureTable table{
      {"layer", "kind", "output", "parameters", "multiply_adds", "routing_iterations"}, {}};
  const std::vector<LayerCost> layers = run.model->costs();
  std::vector<std::string> routed;
  for (const RoutingLayer& layer : run.model->routing_layers()) routed.push_back(layer.name);
  for (const LayerCost& layer : layers) {
    int64_t iterations = 0;
    for (const RoutingLayer& routing : run.model->routing_layers())
      if (routing.name == layer.name) iterations = routing.iterations;
    table.add(layer.name, layer.kind, shape_text(layer.output), layer.parameters,
              layer.multiply_adds, iterations);
  }
  const ImageShape input = run.model->input();
  const std::string title = fmt::format("{} on {}", run.model->name(), run.recipe.dataset.name);
  return {
      title,
      arrange({draw_layers(layers, routed)}, 1, title,
              fmt::format("input {} \u00d7 {} \u00d7 {}, {} parameters; layers with routing in red",
                          input.channels, input.height, input.width,
                          with_commas(run.model->trainable_parameters()))),
      std::move(table)};
}

Figure pipeline_figure(const FigureOptions& options) {
  const ShownRun run = load_one_run(options, "pipeline");
  FigureTable table{{"stage", "item", "value"}, {}};

  Chart zeros;
  zeros.title = "1. learning and pruning";
  zeros.y = {.label = "zeros (%)", .low = 0.0, .high = 100.0};
  ChartBars share{"", {}};
  const Sparsity sparsity = measure_sparsity(*run.run.model);
  for (const Sparsity::Layer& layer : sparsity.layers) {
    if (!layer.prunable || layer.parameters == 0) continue;
    const double percent = 100.0 * static_cast<double>(layer.parameters - layer.nonzero) /
                           static_cast<double>(layer.parameters);
    zeros.categories.push_back(layer.name);
    share.values.push_back(percent);
    table.add("pruning", layer.name, percent);
  }
  check(!share.values.empty(), "{}: no prunable layers", run.label);
  zeros.bars = {share};

  const Quantizer& quantizer = run.class_quantizer();
  CouplingStatistics levels(quantizer);
  TreeGroups groups(quantizer, run.classes());
  run.pass("parse trees of " + run.label, [&](const Batch& batch, const Forward& forward) {
    levels.add(forward);
    groups.add(forward, batch.indices);
  });
  Chart couplings;
  couplings.title = "2. quantization";
  couplings.y = {.label = "couplings", .log = true, .low = 0.7};
  couplings.x.label = fmt::format("level of the coupling, K = {}", quantizer.levels());
  ChartBars counts{"", {}, palette(2)};
  const Tensor histogram = levels.histogram().sum(0);
  for (int64_t k = 0; k < quantizer.levels(); ++k) {
    const double centre = quantizer.centres()[static_cast<size_t>(k)];
    couplings.categories.push_back(quantizer.levels() <= 21 ? fmt::format("{:.2g}", centre) : "");
    counts.values.push_back(static_cast<double>(histogram[k].item<int64_t>()));
    table.add("quantization", fmt::format("{:.4g}", centre), counts.values.back());
  }
  couplings.bars = {counts};

  const ParseTreeReport report = run.trees(run.quantizers, "entropy of " + run.label);
  Chart dictionary;
  dictionary.title = fmt::format("3. dictionary: {:.2f} bits", report.last().entropy);
  dictionary.x = {.label = "parse tree of a class, most frequent first", .log = true, .low = 1.0};
  dictionary.y = {.label = "images", .log = true, .low = 0.7};
  for (int64_t j = 0; j < std::min<int64_t>(run.classes(), 10); ++j) {
    ChartLine line{.name = run.class_name(j), .x = {}, .y = {}};
    for (const auto& images : groups.largest(j, 1000)) {
      line.x.push_back(static_cast<double>(line.x.size() + 1));
      line.y.push_back(static_cast<double>(images.size()));
      table.add("dictionary", fmt::format("{} {}", run.class_name(j), line.x.size()),
                line.y.back());
    }
    dictionary.lines.push_back(std::move(line));
  }
  for (Chart* chart : {&zeros, &couplings, &dictionary}) chart->width = 460, chart->height = 340;
  const std::string title = "REM on " + run.label;
  return {title,
          arrange({draw_chart(zeros), draw_chart(couplings), draw_chart(dictionary)}, 3, title,
                  fmt::format("{}; quantized accuracy {:.2f} %, sparsity {:.2f} %", run.data_line(),
                              100 * report.accuracy_quantized, 100 * sparsity.published())),
          std::move(table)};
}

}  // namespace remcaps
