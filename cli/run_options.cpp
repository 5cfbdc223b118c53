#include "cli/run_options.h"

#include <charconv>

#include "remcaps/base/error.h"
#include "remcaps/base/progress.h"
#include "remcaps/ops/convolution.h"

namespace remcaps::cli {

void RunOptions::add_to(CLI::App& command) {
  command
      .add_option("run", path,
                  "A run's folder (its best checkpoint, or its last where it was pruned), a "
                  "weights file or zoo:NAME")
      ->required();
  command.add_option("--split", split, "train, validation, test or another the data set has")
      ->capture_default_str();
  command.add_option("--checkpoint", checkpoint,
                     "Another checkpoint of the run: best, last or epoch-NNNN");
  command.add_option("--batch", batch, "Images per forward pass")
      ->capture_default_str()
      ->check(between(1, 65536));
  command
      .add_option("--precision", precision,
                  "float32, tf32 or bf16 (default: on a GPU the run's, on a CPU float32)")
      ->check(CLI::IsMember({"float32", "tf32", "bf16"}));
  place.add_to(command);
  distributed.add_to(command);
  command.add_flag("--json", json, "One JSON object on stdout; accuracies are 0 to 1");
}

void RunOptions::with_run(const std::function<void(const LoadedRun&, ProcessGroup*)>& work) const {
  distributed.run(place.device,
                  [&](torch::Device device, ProcessGroup* group) { work(load(device), group); });
}

LoadedRun RunOptions::load(torch::Device device) const {
  LoadedRun run = load_run(path, device, checkpoint);
  const bool can_bf16 =
      cpu_has_bf16_convolution() && run.recipe.kernel_path() == KernelPath::kFused;
  if (run.device.is_cpu() && (precision == "tf32" || (precision == "bf16" && !can_bf16)))
    throw UsageError(
        fmt::format("--precision {} is for a GPU{}", precision,
                    precision == "tf32" ? "" : ", or with fused kernels for a CPU with AMX"));
  if (!precision.empty()) run.compute_in(precision);
  return run;
}

EvaluateOptions RunOptions::evaluation(const LoadedRun& run, ProcessGroup* group) const {
  EvaluateOptions options = run.evaluation();
  options.batch = batch;
  options.group = group;
  return options;
}

std::vector<int64_t> parse_levels(const std::string& text) {
  std::vector<int64_t> levels;
  if (text.empty()) throw UsageError("--levels is empty; expected a K or one per layer");
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, comma - begin);
    begin = comma + 1;
    int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 0 || value == 1 ||
        value > 256)
      throw UsageError(
          fmt::format("--levels {}: {} is no number of levels; expected 2 to 256 (0: leave the "
                      "layer alone), one for all routing layers or one each, as in 11,6",
                      text, word.empty() ? "\"\"" : word));
    levels.push_back(value);
  }
  return levels;
}

LevelChoice choose_with_progress(const LoadedRun& run, const BatchSource& source,
                                 LevelOptions options, EvaluateOptions evaluation) {
  options.form = run.recipe.quantize.form;
  const size_t passes = 1 + level_candidates(options).size() * run.model->routing_layers().size();
  Progress bar("levels", static_cast<int64_t>(passes) * source.size());
  int64_t before = 0;
  evaluation.on_progress = [&](int64_t done) { bar.update(before + done); };
  return find_levels(*run.model, source, options, evaluation,
                     [&](int64_t pass, int64_t) { before = pass * source.size(); });
}

Quantizers quantizers_of(const LoadedRun& run, const std::vector<int64_t>& levels) {
  QuantizeOptions options = run.recipe.quantize;
  if (!levels.empty()) options.levels = levels;
  return options.quantizers(run.model->routing_layers().size());
}

}  // namespace remcaps::cli
