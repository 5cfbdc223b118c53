// remcaps bench: the speed of training, inference and threshold search on this machine, by phase.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/text.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/benchmark.h"

namespace remcaps::cli {
namespace {

struct BenchCommand {
  BenchmarkTask task = BenchmarkTask::kTrain;
  std::string name;  ///< the task, as on the command line
  std::string model, shape = "mnist", device = default_device();
  std::string trained;  ///< a trained network instead of model and shape; only for infer
  std::string precision = "float32", kernels = "fused";
  int64_t batch = 128;
  double seconds = 5;
  std::string trace;
  std::vector<std::string> overrides;
  bool json = false;
};

void print_bench_text(const BenchCommand& options, const BenchmarkResult& result) {
  fmt::print("{} {} on {} images: batch {}, {}, {}, {} kernels, {} thread(s)\n\n", options.name,
             options.model, options.shape, options.batch, options.device, options.precision,
             options.kernels, at::get_num_threads());
  fmt::print("images/s     {:>10.1f}\n", result.images_per_s);
  fmt::print("step         {:>10.2f} ms, mean of {}\n", result.step_ms, result.steps);
  for (const auto& [phase, milliseconds] : result.phases_ms)
    fmt::print("  {:<10} {:>10.2f} ms\n", phase, milliseconds);
  fmt::print("peak memory  {:>10.1f} MiB, the data set not counted\n", result.peak_memory_mib);
}

void print_bench_json(const BenchCommand& options, const BenchmarkResult& result) {
  nlohmann::ordered_json phases = nlohmann::ordered_json::object();
  for (const auto& [phase, milliseconds] : result.phases_ms) phases[phase] = milliseconds;
  fmt::print("{}\n", nlohmann::ordered_json{{"task", options.name},
                                            {"model", options.model},
                                            {"shape", options.shape},
                                            {"batch", options.batch},
                                            {"device", options.device},
                                            {"precision", options.precision},
                                            {"kernels", options.kernels},
                                            {"threads", at::get_num_threads()},
                                            {"steps", result.steps},
                                            {"images_per_s", result.images_per_s},
                                            {"step_ms", result.step_ms},
                                            {"phases_ms", phases},
                                            {"peak_memory_mib", result.peak_memory_mib}}
                         .dump());
}

void run_bench(BenchCommand options) {
  if (options.model.empty() && options.trained.empty())
    throw UsageError(fmt::format("bench {}: --model is required", options.name));
  std::vector<std::string> overrides = {"precision=" + options.precision,
                                        "kernels=" + options.kernels,
                                        fmt::format("train.batch={}", options.batch)};
  if (options.task == BenchmarkTask::kSearch) overrides.emplace_back("pruning.strategy=lobster");
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  std::optional<LoadedRun> trained;
  if (!options.trained.empty()) trained = load_run(options.trained, torch::kCPU);
  const Recipe recipe = trained ? benchmark_recipe(*trained, overrides)
                                : benchmark_recipe(options.model, options.shape, overrides);
  const BenchmarkResult result = run_benchmark(recipe, {.task = options.task,
                                                        .device = parse_device(options.device),
                                                        .seconds = options.seconds,
                                                        .trained = trained ? &*trained : nullptr,
                                                        .trace = options.trace});
  options.model = recipe.model;
  options.shape = recipe.dataset.name;
  (options.json ? print_bench_json : print_bench_text)(options, result);
}

void add_task(CLI::App& bench, BenchmarkTask task, const std::string& name,
              const std::string& about) {
  auto* command = bench.add_subcommand(name, about);
  auto options = std::make_shared<BenchCommand>();
  options->task = task;
  options->name = name;
  auto* model = command->add_option("--model", options->model, "A network's name");
  auto* shape = command
                    ->add_option("--shape", options->shape,
                                 "A data set: the shape of its images, its classes")
                    ->capture_default_str();
  if (task == BenchmarkTask::kInfer)
    command
        ->add_option("--run", options->trained,
                     "Instead of both a trained network: a run, a weights file or zoo:NAME")
        ->excludes(model)
        ->excludes(shape);
  command->add_option("--batch", options->batch, "Images in a batch")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  add_threads(*command);
  command->add_option("--precision", options->precision, "float32, tf32 or bf16")
      ->capture_default_str();
  command->add_option("--kernels", options->kernels, "fused or reference")->capture_default_str();
  command
      ->add_option("--seconds", options->seconds,
                   task == BenchmarkTask::kSearch ? "How long to measure, at least one whole search"
                                                  : "How long to measure")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option("--trace", options->trace,
                   "Also write a timeline of a few steps (Chrome trace, for Perfetto); needs a "
                   "libtorch built with its profiler, unlike Debian's")
      ->type_name("FILE");
  command->add_option("--set", options->overrides, "Change a key of the recipe, repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps bench " + name +
                  " --model dr-capsnet --shape mnist --batch 32 --device cpu");
  command->callback([options] { run_bench(*options); });
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* bench = app.add_subcommand(
      "bench", "Images per second, time by phase and peak memory of a network; needs no data");
  bench->require_subcommand(1);
  add_task(*bench, BenchmarkTask::kTrain, "train",
           "Training steps (--set pruning.strategy=lobster: with REM)");
  add_task(*bench, BenchmarkTask::kInfer, "infer", "Evaluation passes");
  add_task(*bench, BenchmarkTask::kSearch, "search", "Validation passes of the threshold search");
  bench->footer("Example:\n  remcaps bench train --model dr-capsnet --shape mnist --json");
}

}  // namespace remcaps::cli
