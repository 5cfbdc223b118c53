#include "remcaps/report/figure.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"

namespace remcaps::cli {
namespace {

struct FigureCommand {
  std::string name;
  std::vector<std::string> images;
  std::filesystem::path out = "figures";
  double threshold = -1;
  std::string view = "couplings";
  FigureOptions options;
  PlaceOptions place;
};

void list_figures() {
  size_t name_width = 0, paper_width = 0;
  for (const FigureKind& kind : figure_kinds()) {
    name_width = std::max(name_width, kind.name.size());
    if (kind.paper.rfind("none", 0) != 0) paper_width = std::max(paper_width, kind.paper.size());
  }
  fmt::print("{:<{}}  {:<{}}  what it shows (of what runs)\n", "figure", name_width, "paper's",
             paper_width + 1);
  for (const FigureKind& kind : figure_kinds())
    fmt::print("{:<{}}  {:<{}}  {} ({})\n", kind.name, name_width,
               kind.paper.rfind("none", 0) == 0 ? "-" : kind.paper, paper_width + 1, kind.about,
               kind.needs);
}

void run_figure(FigureCommand command) {
  if (command.name == "list") return list_figures();
  command.options.data = command.place.data;
  command.options.device = parse_device(command.place.device);
  for (const std::string& word : command.images) {
    const auto ranges = parse_ranges(word);
    if (!ranges)
      throw UsageError(fmt::format("--image {}: expected places as in 3,14 or 10..14", word));
    command.options.images.insert(command.options.images.end(), ranges->begin(), ranges->end());
  }
  if (command.view == "contributions") command.options.tree.of = TreeOf::kContributions;
  if (command.threshold >= 0) command.options.tree.threshold = command.threshold;
  const FigureFiles files = write_figure(command.name, command.options, command.out);
  fmt::print("{}\n{}\n", files.svg.string(), files.csv.string());
}

}  // namespace

void add_figure(CLI::App& app) {
  auto* command =
      app.add_subcommand("figure", "One of the paper's figures as SVG, its data as CSV");
  auto options = std::make_shared<FigureCommand>();
  command->add_option("name", options->name, "The figure; `list` names them all")->required();
  command->add_option(
      "runs", options->options.runs,
      "Run folders, weights files or zoo:NAME; RUN@epoch-0012 is another checkpoint of a run");
  command->add_option("--out", options->out, "Folder for the two files")->capture_default_str();
  command->add_option("--split", options->options.split, "train, validation, test or another")
      ->capture_default_str();
  command->add_option("--limit", options->options.limit, "Measure only the first so many images")
      ->check(at_least(1));
  command->add_option("--image", options->images,
                      "Places in the split of the images to show, as in 3,7,10..14 (default: the "
                      "first of each class)");
  command->add_option("--levels", options->options.levels, "levels: the K to try")
      ->delimiter(',')
      ->check(between(2, 256));
  command
      ->add_option("--view", options->view,
                   "saliency, parse-tree, parse-trees-samples...: couplings, as in the paper, or "
                   "contributions to the answer")
      ->capture_default_str()
      ->check(CLI::IsMember({"contributions", "couplings"}));
  command->add_flag_callback(
      "--stretch", [options] { options->options.placement = Placement::kStretched; },
      "saliency...: stretch the grid over the image, as the paper does");
  command->add_option("--layer", options->options.layer,
                      "saliency...: this routing layer's children (default: the last on a grid)");
  command
      ->add_option("--threshold", options->threshold,
                   "parse-tree...: couplings above it count (default: 1 / capsules of the layer)")
      ->check(between(0, 1));
  command->add_flag("--weak-edges", options->options.tree.weak_edges,
                    "parse-tree...: show connections below the threshold too");
  command->add_option("--range", options->options.range, "perturbations: how far a dimension moves")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--masks", options->options.masks,
                      "object-share, faithfulness: the masks (default: beside the data file)");
  options->place.add_to(*command);
  command->footer(
      "Examples:\n  remcaps figure list\n"
      "  remcaps figure keys runs/mnist/dr-capsnet/seed-42 runs/mnist/dr-capsnet-rem/seed-42\n"
      "  remcaps figure saliency runs/imagenette/eff-conv-capsnet/seed-42 --image 3,14,159");
  command->callback([options] { run_figure(*options); });
}

}  // namespace remcaps::cli
