#include <fmt/format.h>

#include <map>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/report/model_export.h"
#include "remcaps/training/capsule_pruning.h"

namespace remcaps::cli {
namespace {

struct PruneCommand {
  std::string run, checkpoint, data, group = "capsule";
  std::filesystem::path out;
  CapsulePruningOptions pruning;
  int64_t images = 0;
  bool json = false;
};

const std::map<std::string, CapsuleGroup> kGroups = {{"capsule", CapsuleGroup::kCapsule},
                                                     {"type", CapsuleGroup::kType},
                                                     {"place", CapsuleGroup::kPlace}};

ChildCapsules capsules_of(const LoadedRun& run, const BatchSource& source, const char* what,
                          int64_t limit) {
  EvaluateOptions options = run.evaluation();
  Progress bar(what, limit > 0 ? std::min(limit, source.size()) : source.size());
  options.on_progress = [&bar](int64_t done) { bar.update(done); };
  return child_capsules(*run.model, source, options, limit);
}

void print_try(const CapsulePruningTry& of) {
  std::string quantized;
  if (of.accuracy_quantized && of.entropy)
    quantized = fmt::format(" {:>9.2f} % {:>8.2f} bit", *of.accuracy_quantized * 100, *of.entropy);
  fmt::print("{:>6} {:>9} {:>10.6f} {:>8.2f} %{}{}\n", of.groups, of.capsules, of.loss,
             of.accuracy * 100, quantized, of.within ? "" : "  (above the bound)");
  std::fflush(stdout);
}

nlohmann::json to_json(const std::vector<CapsulePruningTry>& tries) {
  auto list = nlohmann::json::array();
  for (const CapsulePruningTry& of : tries) {
    list.push_back({{"groups", of.groups},
                    {"capsules", of.capsules},
                    {"loss", of.loss},
                    {"accuracy", of.accuracy},
                    {"within", of.within}});
    if (of.accuracy_quantized) list.back()["accuracy_quantized"] = *of.accuracy_quantized;
    if (of.entropy) list.back()["entropy"] = *of.entropy;
  }
  return list;
}

void run_prune(PruneCommand options) {
  if (options.out.extension() != ".safetensors")
    throw UsageError(
        fmt::format("--out {}: expected a name that ends in .safetensors", options.out.string()));
  prepare_output(options.out);
  LoadedRun run = load_run(options.run, torch::kCPU, options.checkpoint);
  prunable_class_layer(*run.model);  // says so before the work begins
  const DataSplits data = run.load_data(options.data);
  options.pruning.group = kGroups.at(options.group);
  options.pruning.margin = run.evaluation().margin;
  options.pruning.quantizer =
      run.recipe.quantize.quantizers(run.model->routing_layers().size()).back();
  options.pruning.seed = static_cast<uint64_t>(run.recipe.train.seed);
  const ChildCapsules validation =
      capsules_of(run, run.source(data, "validation"), "validation", 0);
  const ChildCapsules training =
      capsules_of(run, run.source(data, "train"), "training images", options.images);
  if (!options.json) {
    fmt::print("{:>6} {:>9} {:>10} {:>10} {:>11} {:>12}\n", options.group + "s", "capsules", "loss",
               "accuracy", "quantized", "entropy");
    std::fflush(stdout);  // a try takes minutes
  }
  const auto tries = prune_capsules(*run.model, training, validation, run.model->class_grids(),
                                    options.pruning, [&](const CapsulePruningTry& of) {
                                      if (!options.json) print_try(of);
                                    });
  ModelExportOptions exported;
  exported.pruned = fmt::format(
      "`remcaps prune --group {} --tolerance {:g} --lambda {:g}`: {} of {} {}s left", options.group,
      options.pruning.tolerance, options.pruning.lambda, with_commas(tries.back().groups),
      with_commas(tries.front().groups), options.group);
  Progress bar("evaluating", data.split("test").size());
  ModelExport result =
      export_model(run, data, options.out, exported, [&bar](int64_t done) { bar.update(done); });
  bar.finish();
  if (options.json) {
    result.numbers["tries"] = to_json(tries);
    fmt::print("{}\n", json_text(result.numbers));
  } else {
    fmt::print("{}\n{}\n", result.weights.string(), result.card.string());
  }
}

}  // namespace

void add_prune(CLI::App& app) {
  auto* command = app.add_subcommand(
      "prune", "Takes whole capsules out of a trained network; a small file with a card");
  auto options = std::make_shared<PruneCommand>();
  command->add_option("run", options->run, "A run's folder, a weights file or zoo:NAME")
      ->required();
  command->add_option("--out", options->out, "File to write, NAME.safetensors; its card is NAME.md")
      ->required();
  command
      ->add_option("--group", options->group,
                   "What goes as a whole: a capsule, the capsules of a type at all places, or "
                   "those of all types at a place")
      ->check(CLI::IsMember({"capsule", "type", "place"}))
      ->capture_default_str();
  command
      ->add_option("--tolerance", options->pruning.tolerance,
                   "The validation loss may be above the lowest so far by this share")
      ->check(between(0, 1e6))
      ->capture_default_str();
  command->add_option("--least", options->pruning.least, "Groups that stay at least")
      ->check(at_least(1))
      ->capture_default_str();
  command
      ->add_option("--epochs", options->pruning.epochs,
                   "Epochs of training the class layer after each removal")
      ->check(between(0, 1000))
      ->capture_default_str();
  command->add_option("--lr", options->pruning.lr, "Learning rate of the first of these epochs")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--lambda", options->pruning.lambda, "LOBSTER's, in these epochs")
      ->check(between(0, 1))
      ->capture_default_str();
  command
      ->add_option("--images", options->images,
                   "Train the class layer on this many images (0: all)")
      ->check(at_least(0))
      ->capture_default_str();
  command->add_option("--checkpoint", options->checkpoint,
                      "Another checkpoint of the run: best, last or epoch-NNNN");
  command->add_option("--data", options->data,
                      "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps)");
  add_threads(*command);
  command->add_flag("--json", options->json, "The card's numbers and the tries as one JSON object");
  command->footer(
      "Example:\n  remcaps prune zoo:fashion-mnist/dr-capsnet-rem --out "
      "few-capsules.safetensors\n\n"
      "The numbers it prints are those of the validation images, the card's those of the test "
      "images.");
  command->callback([options] { run_prune(*options); });
}

}  // namespace remcaps::cli
