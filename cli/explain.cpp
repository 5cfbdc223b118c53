#include "remcaps/explain/explain.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/images.h"
#include "cli/run_options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"
#include "remcaps/training/launch.h"

namespace remcaps::cli {
namespace {

struct ExplainCommand {
  std::string run;
  ImageOptions images;
  std::filesystem::path out;
  std::string levels;
  std::string view = "contributions";
  ExplainOptions options;
  PlaceOptions place;
  bool json = false;
};

// "evidence 2.31 = 2.60 for it - 0.40 against it + 0.11 of biases; half of it from 17 of 1,152
// capsules"
std::string evidence_line(const AnswerEvidence& evidence) {
  return fmt::format(
      "evidence {:.3g}: {:.3g} for it, {:.3g} against it, {:.3g} of biases; {} of {} capsules "
      "carry "
      "half of what is for it",
      evidence.total(), evidence.supporting, evidence.opposing, evidence.bias,
      with_commas(evidence.half), with_commas(evidence.capsules));
}

// A line for each file.
std::string list_of(const std::vector<std::string>& files) {
  std::string lines;
  for (const std::string& file : files) lines += fmt::format("  {}\n", printable(file));
  return lines;
}

nlohmann::json evidence_json(const AnswerEvidence& evidence) {
  return {{"total", evidence.total()},
          {"supporting", evidence.supporting},
          {"opposing", evidence.opposing},
          {"bias", evidence.bias},
          {"layer", evidence.layer},
          {"capsules", evidence.capsules},
          {"effective_parts", {{"half", evidence.half}, {"spread", evidence.spread}}}};
}

// Reports an option that has no effect together with the others.
void check_options(const ExplainOptions& options) {
  const bool everything = !options.saliency && !options.tree && !options.perturbations;
  const auto needs = [&](bool given, const char* option, bool asked_for, const char* flag) {
    if (given && !everything && !asked_for)
      throw UsageError(fmt::format("{}: without {} it changes nothing", option, flag));
  };
  needs(!options.layer.empty(), "--layer", options.saliency, "--saliency");
  needs(options.placement == Placement::kStretched, "--stretch", options.saliency, "--saliency");
  needs(options.tree_options.threshold.has_value(), "--threshold", options.tree, "--tree");
  needs(options.tree_options.weak_edges, "--weak-edges", options.tree, "--tree");
  needs(options.range.has_value(), "--range", options.perturbations, "--perturb");
}

void run_explain(ExplainCommand command) {
  check_options(command.options);
  if (command.view == "couplings") command.options.tree_options.of = TreeOf::kCouplings;
  std::vector<int64_t> levels;
  if (!command.levels.empty()) levels = parse_levels(command.levels);
  LoadedRun run = load_run(command.run, parse_device(command.place.device));
  run.compute_in("float32");
  if (!levels.empty()) run.recipe.quantize.levels = levels;
  std::vector<std::string> left_out;  // the same for all images
  nlohmann::json all = nlohmann::json::array();
  // A folder per recipe: networks on the same images do not overwrite each other's pictures.
  if (command.out.empty())
    command.out = std::filesystem::path("explained") / folder_of_recipe(run.recipe);
  for (const ImageInput& input : list_images(run, command.images, command.place.data)) {
    const ExplanationFiles explanation =
        explain_image(run, input.read(), command.options, command.out / input.stem);
    const Answer &plain = explanation.plain, &quantized = explanation.quantized;
    const std::string name = run.class_name(plain.predicted);
    std::vector<std::string> files;
    for (const auto& file : explanation.files) files.push_back(file.string());
    all.push_back(
        {{"image", input.name},
         {"class", name},
         {"activation", plain.activation},
         {"quantized",
          {{"class", run.class_name(quantized.predicted)}, {"activation", quantized.activation}}},
         {"evidence", evidence_json(explanation.evidence)},
         {"files", files}});
    if (input.label) all.back()["label"] = *input.label;
    const std::string line =
        fmt::format("{}  {} {:.3f}{}{}", input.name, name, plain.activation, input.remark(name),
                    plain.predicted == quantized.predicted
                        ? ""
                        : fmt::format("; with quantized couplings {} {:.3f}",
                                      run.class_name(quantized.predicted), quantized.activation));
    if (!command.json)
      fmt::print("{}\n  {}\n{}", printable(line), evidence_line(explanation.evidence),
                 list_of(files));
    left_out = explanation.left_out;
  }
  if (command.json)
    fmt::print("{}\n", json_text({{"model", run.recipe.model},
                                  {"dataset", run.recipe.dataset.name},
                                  {"weights", run.weights.string()},
                                  {"explanations", all},
                                  {"left_out", left_out}}));
  else if (!left_out.empty())
    fmt::print("{}\n", fmt::join(left_out, "\n"));
}

}  // namespace

void add_explain(CLI::App& app) {
  auto* command = app.add_subcommand(
      "explain",
      "What the network looked at: saliency maps, parse trees, perturbed reconstructions");
  auto options = std::make_shared<ExplainCommand>();
  command->add_option("run", options->run, "A run's folder, a weights file or zoo:NAME")
      ->required();
  options->images.add_to(*command);
  command->add_option("--out", options->out,
                      "Folder for the pictures (default: explained/<data set>/<recipe>)");
  command->add_flag("--saliency", options->options.saliency, "Saliency maps only");
  command->add_flag("--tree", options->options.tree, "Parse trees only");
  command->add_flag("--perturb", options->options.perturbations,
                    "Reconstructions with each pose dimension moved, only");
  command
      ->add_option("--view", options->view,
                   "contributions: how much each capsule contributes to the answer; couplings: the "
                   "paper's view, couplings times activations")
      ->capture_default_str()
      ->check(CLI::IsMember({"contributions", "couplings"}));
  command->add_flag_callback(
      "--stretch", [options] { options->options.placement = Placement::kStretched; },
      "Stretch the grid over the image, as the paper does, instead of placing each capsule on the "
      "pixels it sees");
  command->add_option("--layer", options->options.layer,
                      "Saliency of this routing layer's children (default: the last on a grid)");
  command
      ->add_option("--threshold", options->options.tree_options.threshold,
                   "Couplings, or shares of the evidence, above it are part of a tree (default: "
                   "couplings above 1 / capsules of the layer; the contributions that carry half)")
      ->check(between(0, 1));
  command->add_flag("--weak-edges", options->options.tree_options.weak_edges,
                    "Show connections below the threshold too");
  command->add_option("--levels", options->levels,
                      "K of the quantizer: one, or one per routing layer (11,6); 0: none "
                      "(default: the recipe's)");
  command
      ->add_option(
          "--range", options->options.range,
          fmt::format("How far --perturb moves a dimension (default: {})", kPerturbationRange))
      ->check(above_zero());
  options->place.add_to(*command);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer(fmt::format(
      "Example:\n  remcaps explain runs/fashion-mnist/dr-capsnet/seed-42 boot.png test:0..9\n\n"
      "Without --saliency, --tree and --perturb it writes all the network can show, and says what\n"
      "it cannot. The class it prints is that of `predict`; pictures are of the class with\n"
      "quantized couplings, which it names too where that is another (--levels 0 quantizes none).\n"
      "It computes in float32, whatever precision the run was trained in.\n\n{}",
      kPicturesHelp));
  command->callback([options] { run_explain(*options); });
}

}  // namespace remcaps::cli
