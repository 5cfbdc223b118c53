#include "remcaps/report/figure.h"

#include <fmt/ranges.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/report/figure_kinds.h"
#include "remcaps/report/find_named.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// Whether a figure with this description may have this name: nothing is there yet, or a figure of
// the same runs.
bool may_write(const fs::path& svg, const std::string& description) {
  std::error_code error;
  return !fs::exists(svg, error) ||
         read_file(svg).find(Svg::description(description)) != std::string::npos;
}

}  // namespace

std::string FigureTable::cell(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string FigureTable::csv() const {
  std::string text = csv_row(columns);
  for (const auto& row : rows) text += csv_row(row);
  return text;
}

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kinds = {
      {"architecture", "1", "The network's layers with their shapes", "one run",
       architecture_figure},
      {"parse-tree", "2, 6", "The parse tree of one image", "runs with fully connected capsules",
       parse_tree_figure},
      {"pipeline", "3", "REM's stages on a run: zeros, quantized couplings, dictionary", "one run",
       pipeline_figure},
      {"saliency-steps", "4", "How activations and couplings become a saliency map",
       "one run with capsules on a grid", saliency_steps_figure},
      {"saliency", "5", "Saliency maps over images, run below run",
       "runs of one data set with capsules on a grid", saliency_figure},
      {"levels", "7", "Accuracy and entropy against the number of levels K", "runs of one data set",
       levels_figure},
      {"entropy", "8", "Entropy and accuracy against epoch and sparsity",
       "run folders with entropies in metrics.csv", entropy_figure},
      {"keys", "9", "Number of parse trees of each class", "runs of one data set", keys_figure},
      {"sparsity", "10, 14", "Entropy and accuracy against sparsity, one point a run",
       "runs pruned to several sparsities (SNIP)", sparsity_figure},
      {"pareto", "none: trade-offs",
       "Accuracy against entropy, effective parts, capsules and weights left, one point a run",
       "runs of one data set", pareto_figure},
      {"perturbations", "11", "Reconstructions with each pose dimension moved",
       "one run with a decoder", perturbations_figure},
      {"couplings-epochs", "12", "Distributions of couplings of each class at two epochs",
       "one run folder with kept epochs", couplings_epochs_figure},
      {"couplings", "13", "Distributions of couplings of each class", "runs of one data set",
       couplings_figure},
      {"parse-trees-dataset", "15, 18", "The mean parse tree of a data set",
       "runs with fully connected capsules", dataset_trees_figure},
      {"parse-trees-classes", "16, 19", "The mean parse tree of each class",
       "runs with fully connected capsules", class_trees_figure},
      {"parse-trees-samples", "17, 20", "Parse trees of some images",
       "runs with fully connected capsules", sample_trees_figure},
      {"saliency-views", "21, 22", "Saliency maps of one object per category over its views",
       "smallNORB runs with capsules on a grid", saliency_views_figure},
      {"dictionary", "none: images that share a parse tree", "The most frequent trees' mean images",
       "one run", dictionary_figure},
      {"object-share", "none: the truth test", "Share of saliency that lies on the pasted object",
       "runs trained on images of `remcaps paste`", object_share_figure},
      {"faithfulness", "none: the truth test",
       "Pixels taken away or put back in the order of a map", "runs with capsules on a grid",
       faithfulness_figure},
  };
  return kinds;
}

const FigureKind& figure_kind(const std::string& name) {
  return find_named(figure_kinds(), "figure", name);
}

void expect_one_run(const FigureOptions& options, const std::string& figure) {
  if (options.runs.size() != 1)
    throw UsageError(
        fmt::format("figure {}: {} runs given; it shows one", figure, options.runs.size()));
}

ShownRun load_one_run(const FigureOptions& options, const std::string& figure) {
  expect_one_run(options, figure);
  return std::move(load_shown_runs(options).front());
}

std::vector<int64_t> shown_images(const FigureOptions& options, const ShownRun& run, size_t most) {
  std::vector<int64_t> places;
  for (const NumberRange& range : options.images) {
    check(range.last < run.part.size(), "image {}; the {} split has 0 to {}", range.last,
          options.split, run.part.size() - 1);
    for (int64_t place = range.first; place <= range.last; ++place) places.push_back(place);
  }
  check(options.images.empty() || places.size() <= most, "{} images; this figure shows at most {}",
        places.size(), most);
  if (places.empty()) {
    for (int64_t j = 0; j < run.classes(); ++j) {
      const Tensor found = run.part.labels.eq(j).nonzero();
      if (found.size(0) > 0) places.push_back(found[0][0].item<int64_t>());
    }
  }
  if (places.size() > most) places.resize(most);
  return places;
}

FigureFiles write_figure(const std::string& name, const FigureOptions& options,
                         const std::filesystem::path& folder) {
  const FigureKind& kind = figure_kind(name);
  if (options.runs.empty())
    throw UsageError(fmt::format("figure {}: no run given; it needs {}", name, kind.needs));
  const Figure figure = kind.make(options);
  make_folder(folder);
  const std::string runs = fmt::format("Runs: {}", fmt::join(options.runs, ", "));
  FigureFiles files;
  for (int number = 1; files.svg.empty() || !may_write(files.svg, runs); ++number) {
    const std::string stem = number == 1 ? name : fmt::format("{}-{}", name, number);
    files = {folder / (stem + ".svg"), folder / (stem + ".csv")};
  }
  write_atomically(files.svg, figure.drawing.str(figure.title, runs));
  write_atomically(files.csv, figure.table.csv());
  return files;
}

}  // namespace remcaps
