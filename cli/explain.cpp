#include "remcaps/explain/explain.h"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps::cli {
namespace {

struct ExplainCommand {
  std::string run;
  std::vector<std::string> images;
  std::filesystem::path out = "explained";
  std::string levels;
  double threshold = -1;
  ExplainOptions options;
  PlaceOptions place;
  bool json = false;
};

struct Input {
  std::string name;                     ///< as the user gave it, "test:17" for each image of a list
  std::string stem;                     ///< of its files
  std::optional<std::string> label;     ///< its class, where the data set says it
  std::function<torch::Tensor()> read;  ///< [1, C, H, W]
};

// Finds out about every image before the first one is explained: a misspelt one stops the command
// while nothing is written.
class InputList {
 public:
  InputList(const LoadedRun& run, std::string data_root)
      : run_(run), data_root_(std::move(data_root)) {}

  // A file, or places in a split: "test:3,7,10..14".
  void add(const std::string& word) {
    const size_t colon = word.find(':');
    std::error_code ignored;
    if (colon == std::string::npos || std::filesystem::exists(word, ignored))
      add_file(word);
    else
      add_places(word, word.substr(0, colon), parse_ranges(word.substr(colon + 1)));
  }

  std::vector<Input> take() { return std::move(inputs_); }

 private:
  void add_file(const std::string& path) {
    inputs_.push_back({path, unique(std::filesystem::path(path).stem().string()), std::nullopt,
                       [image = run_.read_input(path)] { return image; }});
  }

  void add_places(const std::string& word, const std::string& split,
                  const std::optional<std::vector<NumberRange>>& ranges) {
    if (!ranges)
      throw UsageError(fmt::format(
          "{}: no such file; expected one, or images of the data set as in test:3,7,10..14", word));
    if (!data_) data_ = run_.load_data(data_root_);
    auto& source = sources_[split];
    if (!source) source = std::make_shared<BatchSource>(run_.source(*data_, split));
    const torch::Tensor labels = data_->split(split).labels;
    for (const NumberRange& range : *ranges) {
      check(range.last < source->size(), "{}: the {} split has images 0 to {}", word, split,
            source->size() - 1);
      for (int64_t place = range.first; place <= range.last; ++place)
        inputs_.push_back(
            {fmt::format("{}:{}", split, place), unique(fmt::format("{}-{}", split, place)),
             data_->class_names.at(static_cast<size_t>(labels[place].item<int64_t>())),
             [source, place] { return source->evaluation_batch(place, 1).images; }});
    }
  }

  // Files of one name may come from several folders.
  std::string unique(const std::string& stem) {
    std::string name = stem;
    for (int n = 2; !stems_.insert(name).second; ++n) name = fmt::format("{}-{}", stem, n);
    return name;
  }

  const LoadedRun& run_;
  std::string data_root_;
  std::optional<DataSplits> data_;
  std::map<std::string, std::shared_ptr<const BatchSource>> sources_;  // by split
  std::set<std::string> stems_;
  std::vector<Input> inputs_;
};

void run_explain(ExplainCommand command) {
  std::vector<int64_t> levels;
  if (!command.levels.empty()) levels = parse_levels(command.levels);
  LoadedRun run = load_run(command.run, parse_device(command.place.device));
  run.compute_in("float32");
  if (!levels.empty()) run.recipe.quantize.levels = levels;
  if (command.threshold >= 0) command.options.tree_options.threshold = command.threshold;
  nlohmann::json all = nlohmann::json::array();
  InputList inputs(run, command.place.data);
  for (const std::string& word : command.images) inputs.add(word);
  for (const Input& input : inputs.take()) {
    const Explanation explanation =
        explain_image(run, input.read(), command.options, command.out / input.stem);
    const std::string name = run.class_names.at(static_cast<size_t>(explanation.predicted));
    std::vector<std::string> files;
    for (const auto& file : explanation.files) files.push_back(file.string());
    all.push_back({{"image", input.name},
                   {"class", name},
                   {"activation", explanation.activation},
                   {"files", files}});
    if (input.label) all.back()["label"] = *input.label;
    if (!command.json)
      fmt::print("{}  {} {:.3f}{}\n{}", input.name, name, explanation.activation,
                 input.label && *input.label != name ? ", labelled " + *input.label : "",
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
                   "PNG or JPEG files, or images of the data set: test:17, test:3,7,10..14")
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
  command->add_option("--levels", options->levels,
                      "K of the quantizer: one, or one per routing layer (11,6); 0: none "
                      "(default: the recipe's)");
  command->add_option("--range", options->options.range, "How far --perturb moves a dimension")
      ->check(above_zero())
      ->capture_default_str();
  options->place.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(
      "Example:\n  remcaps explain runs/fashion-mnist/dr-capsnet/seed-42 boot.png test:0..9 --out "
      "explained\n\nWithout --saliency, --tree and --perturb it writes all the network can show. "
      "It "
      "computes in\nfloat32, whatever precision the run was trained in.");
  command->callback([options] { run_explain(*options); });
}

}  // namespace remcaps::cli
