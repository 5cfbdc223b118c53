#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/report/model_export.h"
#include "remcaps/report/onnx_export.h"

namespace remcaps::cli {
namespace {

struct ExportCommand {
  std::string run, checkpoint, data, data_note, format = "safetensors", weights = "half";
  std::vector<int64_t> levels;
  std::filesystem::path out;
  bool compact = false, static_routing = false, json = false;
};

void run_export(const ExportCommand& options) {
  if (options.out.extension() != "." + options.format)
    throw UsageError(fmt::format("--out {}: expected a name that ends in .{}", options.out.string(),
                                 options.format));
  const bool onnx = options.format == "onnx";
  if (!onnx && !options.levels.empty()) throw UsageError("--levels is for --format onnx");
  if (onnx && (options.json || !options.data_note.empty()))
    throw UsageError("--json and --data-note are for the card, which an ONNX file does not have");
  const ModelExportOptions changes{.data_note = options.data_note,
                                   .compact = options.compact,
                                   .int8_weights = options.weights == "int8",
                                   .static_routing = options.static_routing};
  if (onnx && (changes.compact || changes.changes_answers()))
    throw UsageError("--compact, --weights and --static-routing are for --format safetensors");
  LoadedRun run = load_run(options.run, torch::kCPU, options.checkpoint);
  if (onnx) {
    export_onnx(run, options.out, options.levels);
    fmt::print("{}\n", options.out.string());
    return;
  }
  ModelExport result;
  // An exported file says how good it is.
  if (has_card(run.weights) && options.data.empty() && options.data_note.empty() &&
      !changes.changes_answers()) {
    result = export_again(run, options.out, options.compact);
  } else {
    const DataSplits data = run.load_data(options.data);
    Progress bar("evaluating", data.split("test").size());
    result =
        export_model(run, data, options.out, changes, [&bar](int64_t done) { bar.update(done); });
  }
  if (options.compact && result.left_nothing_out)
    say("note: no filter and no capsule type is dead; there was nothing to take out");
  if (options.json)
    fmt::print("{}\n", json_text(result.numbers));
  else
    fmt::print("{}\n{}\n", result.weights.string(), result.card.string());
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "A trained network as one small file: half precision, zeros left out, with a card");
  auto options = std::make_shared<ExportCommand>();
  command->add_option("run", options->run, "A run's folder or a weights file")->required();
  command->add_option("--out", options->out, "File to write, NAME.safetensors; its card is NAME.md")
      ->required();
  command
      ->add_option("--format", options->format,
                   "safetensors, or onnx: NAME.onnx for ONNX Runtime, without a card")
      ->check(CLI::IsMember({"safetensors", "onnx"}))
      ->capture_default_str();
  command
      ->add_option("--levels", options->levels,
                   "With onnx: round couplings to so many levels; one number, or one per "
                   "routing layer with commas (0: not rounded)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{256}));
  command->add_flag("--compact", options->compact,
                    "Without filters and capsules that pruning has made dead. If there are any, "
                    "only remcaps-run and the runtime can read the file");
  command
      ->add_option(
          "--weights", options->weights,
          "half: half precision, or int8: 8 bits per weight, for the runtime only; the card "
          "says what that costs")
      ->check(CLI::IsMember({"half", "int8"}))
      ->capture_default_str();
  command->add_flag("--static-routing", options->static_routing,
                    "An experiment, for the runtime only: couplings are their means over the "
                    "training images, and nothing is iterated; the card says what that costs");
  command->add_option("--checkpoint", options->checkpoint,
                      "Another checkpoint of the run: best, last or epoch-NNNN");
  command->add_option("--data", options->data,
                      "Folder of the data sets (default: $REMCAPS_DATA, else ~/.cache/remcaps). "
                      "A network that was exported before keeps its card without it");
  add_threads(*command);
  command->add_option("--data-note", options->data_note,
                      "How the data differ from the official ones, for the card");
  command->add_flag("--json", options->json, "The card's numbers as one JSON object on stdout");
  command->footer(
      "Example:\n  remcaps export runs/mnist/dr-capsnet-rem/seed-42 --out "
      "models/mnist/dr-capsnet-rem.safetensors\n  remcaps eval zoo:mnist/dr-capsnet-rem\n"
      "  remcaps export zoo:mnist/dr-capsnet-rem --format onnx --levels 11 --out digits.onnx");
  command->callback([options] { run_export(*options); });
}

}  // namespace remcaps::cli
