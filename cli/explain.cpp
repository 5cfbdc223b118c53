#include "remcaps/explain/explain.h"

#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"

namespace remcaps::cli {
namespace {

struct ExplainCommand {
  std::string run;
  std::vector<std::string> images;
  std::filesystem::path out = "explained";
  std::vector<int64_t> levels;
  double threshold = -1;
  ExplainOptions options;
  PlaceOptions place;
  bool json = false;
};

// "test:17" or "test:0-9".
struct SplitRange {
  std::string split;
  int64_t first = 0, last = 0;
};

std::optional<SplitRange> parse_split_range(const std::string& word) {
  const size_t colon = word.find(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(word, ignored)) return std::nullopt;
  SplitRange range{word.substr(0, colon)};
  const char* end = word.data() + word.size();
  const auto first = std::from_chars(word.data() + colon + 1, end, range.first);
  if (first.ec != std::errc()) return std::nullopt;
  range.last = range.first;
  if (first.ptr == end) return range;
  const auto last = std::from_chars(first.ptr + 1, end, range.last);
  const bool whole = *first.ptr == '-' && last.ec == std::errc() && last.ptr == end;
  return whole && range.last >= range.first ? std::optional(range) : std::nullopt;
}

struct Input {
  std::string name;  ///< as the user gave it, "test:17" for each image of a range
  std::string stem;  ///< of its files
  std::function<torch::Tensor()> read;  ///< [1, C, H, W]
};

// Finds out about every image before the first one is explained: a misspelt one stops the command
// while nothing is written.
std::vector<Input> list_inputs(const ExplainCommand& command, const LoadedRun& run) {
  std::vector<Input> inputs;
  std::shared_ptr<DataSplits> data;
  std::set<std::string> stems;
  const auto unique = [&](const std::string& stem) {
    std::string name = stem;
    for (int n = 2; !stems.insert(name).second; ++n) name = fmt::format("{}-{}", stem, n);
    return name;
  };
  for (const std::string& word : command.images) {
    const std::optional<SplitRange> range = parse_split_range(word);
    if (!range) {
      inputs.push_back({word, unique(std::filesystem::path(word).stem().string()),
                        [&run, image = run.read_input(word)] { return image; }});
      continue;
    }
    if (!data) data = std::make_shared<DataSplits>(run.load_data(command.place.data));
    const auto source = std::make_shared<BatchSource>(run.source(*data, range->split));
    check(range->first >= 0 && range->last < source->size(), "{}: the {} split has images 0 to {}",
          word, range->split, source->size() - 1);
    for (int64_t place = range->first; place <= range->last; ++place)
      inputs.push_back({fmt::format("{}:{}", range->split, place),
                        unique(fmt::format("{}-{}", range->split, place)),
                        [source, place] { return source->evaluation_batch(place, 1).images; }});
  }
  return inputs;
}

void run_explain(ExplainCommand command) {
  LoadedRun run = load_run(command.run, parse_device(command.place.device));
  if (!command.levels.empty()) run.recipe.quantize.levels = command.levels;
  if (command.threshold >= 0) command.options.tree_options.threshold = command.threshold;
  nlohmann::json all = nlohmann::json::array();
  for (const Input& input : list_inputs(command, run)) {
    const Explanation explanation =
        explain_image(run, input.read(), command.options, command.out / input.stem);
    const std::string name = run.class_names.at(static_cast<size_t>(explanation.predicted));
    std::vector<std::string> files;
    for (const auto& file : explanation.files) files.push_back(file.string());
    all.push_back({{"image", input.name},
                   {"class", name},
                   {"activation", explanation.activation},
                   {"files", files}});
    if (!command.json)
      fmt::print("{}  {} {:.3f}\n{}", input.name, name, explanation.activation,
                 files.empty() ? "  nothing to show: no grid, no decoder, too many capsules for a "
                                 "parse tree\n"
                               : fmt::format("  {}\n", fmt::join(files, "\n  ")));
  }
  if (command.json)
    fmt::print("{}\n", nlohmann::json{{"model", run.recipe.model},
                                      {"dataset", run.recipe.dataset.name},
                                      {"weights", run.weights.string()},
                                      {"explanations", all}}
                           .dump());
}

}  // namespace

void add_explain(CLI::App& app) {
  auto* command = app.add_subcommand(
      "explain",
      "What the network looked at: saliency maps, parse trees, perturbed reconstructions");
  auto options = std::make_shared<ExplainCommand>();
  command->add_option("run", options->run, "A run's folder, a weights file or zoo:NAME")
      ->required();
  command
      ->add_option("images", options->images,
                   "PNG or JPEG files, or images of the data set: test:17, test:0-9")
      ->required();
  command->add_option("--out", options->out, "Folder for the pictures")->capture_default_str();
  command->add_flag("--saliency", options->options.saliency, "Saliency maps only");
  command->add_flag("--tree", options->options.tree, "Parse trees only");
  command->add_flag("--perturb", options->options.perturbations,
                    "Reconstructions with each pose dimension moved, only");
  command->add_option("--layer", options->options.layer,
                      "Saliency of this routing layer's children (default: the last on a grid)");
  command
      ->add_option("--threshold", options->threshold,
                   "Couplings above it are part of a tree (default: 1 / capsules of the layer)")
      ->check(between(0, 1));
  command->add_flag("--weak-edges", options->options.tree_options.weak_edges,
                    "Show connections below the threshold too");
  command
      ->add_option(
          "--levels", options->levels,
          "Quantization levels, one or one per routing layer; 0: none (default: the recipe's)")
      ->check(at_least(0));
  command->add_option("--range", options->options.range, "How far --perturb moves a dimension")
      ->check(above_zero())
      ->capture_default_str();
  options->place.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(
      "Example:\n  remcaps explain runs/fashion-mnist/dr-capsnet/seed-42 boot.png test:0-9 --out "
      "explained\n\nWithout --saliency, --tree and --perturb it writes all the network can show.");
  command->callback([options] { run_explain(*options); });
}

}  // namespace remcaps::cli
