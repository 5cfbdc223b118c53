#include "remcaps/training/benchmark.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/base/progress.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/evaluation/evaluate.h"
#include "remcaps/evaluation/memory.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/recipe/context.h"
#include "remcaps/torch/compat.h"
#include "remcaps/torch/profile.h"
#include "remcaps/training/step_graph.h"
#include "remcaps/training/trainer.h"

namespace remcaps {
namespace {

// How many batches the synthetic data set has: enough to make reading back a result negligible.
constexpr int64_t kCpuBatches = 8, kGpuBatches = 64;
constexpr int kWarmUps = 2, kGraphWarmUps = 6;  // a step is recorded after a few others
constexpr int kTracedPieces = 4;

// A search is dozens of passes: one is enough, and on a CPU search_work() makes do with a pass.
int warm_ups(const BenchmarkOptions& options) {
  if (options.task == BenchmarkTask::kSearch) return options.device.is_cuda() ? 1 : 0;
  const bool records = options.task == BenchmarkTask::kTrain && has_device_graphs(options.device);
  return records ? kGraphWarmUps : kWarmUps;
}

int traced_pieces(const BenchmarkOptions& options) {
  return options.task == BenchmarkTask::kSearch ? 1 : kTracedPieces;
}

Dataset synthetic_images(const Recipe& recipe, int64_t count, int64_t classes) {
  std::vector<int64_t> shape = find_dataset(recipe.dataset.name).shape;
  shape.insert(shape.begin(), count);
  Dataset data;
  data.images = torch::randint(0, 256, shape, torch::kUInt8);
  data.labels = torch::arange(count) % classes;
  return data;
}

// "VmHWM" (the peak since it was last reset) or "VmRSS" of this process, in bytes; 0: not known.
int64_t process_memory(const std::string& field) {
  return read_field("/proc/self/status", field + ":").value_or(0) * 1024;
}

// Measures from its construction on.
class PeakMemory {
 public:
  explicit PeakMemory(torch::Device device) : cuda_(device.is_cuda()) {
    if (cuda_) {
      cuda_reset_peak();
      base_ = cuda_peak_bytes();
    } else {
      std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
      base_ = process_memory("VmRSS");
    }
  }
  double mebibytes() const {
    const int64_t peak = cuda_ ? cuda_peak_bytes() : process_memory("VmHWM");
    return static_cast<double>(std::max<int64_t>(0, peak - base_)) / (1 << 20);
  }

 private:
  bool cuda_;
  int64_t base_ = 0;
};

// One task, ready to run: does a piece of its work and returns the batches in it.
using Work = std::function<int64_t(PhaseClock* clock)>;

struct Setup {
  Recipe& recipe;
  CapsNet& model;
  const BatchSource& source;
  torch::Device device;
};

Work training_work(const Setup& setup) {
  auto step = std::make_shared<TrainingStep>(setup.recipe, setup.model, setup.device);
  setup.model.train();
  PruningContext context{.model = setup.model};
  step->pruner().before_epoch(context);
  std::shared_ptr<StepGraph> graph;
  if (StepGraph::serves(setup.recipe, *step, setup.source, setup.device))
    graph = std::make_shared<StepGraph>(setup.recipe, *step, setup.source, setup.device);
  return [setup, step, graph, sums = EpochSums::zeros(setup.device),
          position = int64_t{0}](PhaseClock* clock) mutable -> int64_t {
    step->set_clock(clock);
    PruningContext context{.model = setup.model};
    // A recorded step has no phases to time.
    if (clock != nullptr || !graph || !graph->run(position, context, sums)) {
      const auto seed = static_cast<uint64_t>(setup.recipe.train.seed);
      const Batch batch = setup.source.training_batch(position, setup.recipe.train.batch, seed,
                                                      /*epoch=*/0);
      mark(clock, "batch");
      check(step->run(batch, position, context, sums),
            "bench: the loss is not finite; train.lr is {}", setup.recipe.train.lr);
    }
    position = (position + 1) % setup.source.batches(setup.recipe.train.batch);
    return 1;
  };
}

EvaluateOptions options_of(const Setup& setup) {
  EvaluateOptions options = evaluation_options(setup.recipe, /*epoch=*/0, setup.source.device());
  options.bf16 = setup.recipe.precision == "bf16";  // requested by the user, so on a CPU too
  options.batch = setup.recipe.train.batch;
  return options;
}

Work inference_work(const Setup& setup) {
  EvaluateOptions options = options_of(setup);
  auto pass =
      std::make_shared<EvaluationPass>(setup.model, setup.source, options, setup.recipe.cuda_graph);
  return [setup, options, pass](PhaseClock* clock) mutable {
    options.clock = clock;
    // A recorded pass has no phases to time.
    clock == nullptr ? pass->run() : evaluate(setup.model, setup.source, options);
    return setup.source.batches(options.batch);
  };
}

// A piece is one search from the same weights.
Work search_work(const Setup& setup) {
  const std::vector<Tensor> parameters = setup.model.parameters();
  std::vector<Tensor> start;
  for (const Tensor& parameter : parameters) start.push_back(parameter.detach().clone());
  EvaluateOptions options = options_of(setup);
  std::shared_ptr<EvaluationPass> pass;  // as in the trainer
  if (setup.device.is_cuda()) {
    options.batch = search_batch(setup.model, setup.device);
    pass = std::make_shared<EvaluationPass>(setup.model, setup.source, options,
                                            setup.recipe.cuda_graph);
  } else {
    evaluate_margin_loss(setup.model, setup.source, options);  // the warm-up
  }
  return [setup, parameters, start, options, pass](PhaseClock* clock) {
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < start.size(); ++i) Tensor(parameters[i]).copy_(start[i]);
    }
    if (clock != nullptr) clock->skip();
    TrainingStep step(setup.recipe, setup.model, setup.device);
    PruningContext context{.model = setup.model};
    context.validation_loss = [&setup, &options, &pass, clock] {
      mark(clock, "thresholds");
      const double loss =
          pass ? pass->loss() : evaluate_margin_loss(setup.model, setup.source, options);
      mark(clock, "validation");
      return loss;
    };
    const PruningReport report = step.pruner().after_epoch(context);
    mark(clock, "thresholds");
    check(report.evaluations > 0, "bench: pruning.strategy {} searches for no threshold",
          setup.recipe.pruning["strategy"].as<std::string>());
    return report.evaluations * setup.source.batches(setup.recipe.train.batch);
  };
}

Work work_of(BenchmarkTask task, const Setup& setup) {
  switch (task) {
    case BenchmarkTask::kTrain:
      return training_work(setup);
    case BenchmarkTask::kInfer:
      return inference_work(setup);
    case BenchmarkTask::kSearch:
      return search_work(setup);
  }
  fail("bench: no such task");
}

// Runs pieces of work for so many seconds, at least one. Returns the batches and the seconds.
std::pair<int64_t, double> run_for(double seconds, const Work& work, torch::Device device,
                                   PhaseClock* clock) {
  Progress bar("measuring", std::llround(1000 * seconds));
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  int64_t batches = 0;
  if (clock != nullptr) clock->skip();
  do {
    bar.update(std::llround(1000 * elapsed()));
    batches += work(clock);
  } while (elapsed() < seconds);
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
  return {batches, elapsed()};
}

}  // namespace

Recipe benchmark_recipe(const std::string& model, const std::string& shape,
                        const std::vector<std::string>& overrides) {
  const std::vector<std::string> models = network_names();
  if (std::find(models.begin(), models.end(), model) == models.end())
    throw UsageError(fmt::format("unknown network {}{}", model, suggestion(model, models)));
  const DatasetDescriptor& entry = find_dataset(shape);
  if (entry.shape.empty())
    throw UsageError(
        fmt::format("--shape {}: its images have no fixed shape; expected a data set whose images "
                    "have one",
                    shape));
  const std::string name = shape + "/" + model;
  const std::vector<std::string> recipes = recipe_names();
  if (std::find(recipes.begin(), recipes.end(), name) != recipes.end())
    return load_recipe(name, overrides);
  YAML::Node node(YAML::NodeType::Map);
  node["dataset"]["name"] = shape;
  node["model"]["name"] = model;
  for (const std::string& assignment : overrides) set_yaml_path(node, assignment);
  return parse_recipe(node, name);
}

Recipe benchmark_recipe(const LoadedRun& trained, const std::vector<std::string>& overrides) {
  YAML::Node node = trained.recipe.to_yaml();
  for (const std::string& assignment : overrides) set_yaml_path(node, assignment);
  return parse_recipe(node, trained.recipe.name);
}

BenchmarkResult run_benchmark(Recipe recipe, const BenchmarkOptions& options) {
  std::optional<ModelContext> context = known_context(recipe);
  check(context.has_value(), "bench: the images of {} have no fixed shape", recipe.dataset.name);
  const bool cpu_has_bf16 = options.task != BenchmarkTask::kTrain &&
                            recipe.kernel_path() == KernelPath::kFused &&
                            cpu_has_bf16_convolution();
  if (recipe.precision == "bf16" && !options.device.is_cuda() && !cpu_has_bf16)
    throw UsageError(
        "--precision bf16 is for a GPU, or on a CPU with AMX for infer and search with fused "
        "kernels; here convolutions are float32");
  if (!options.trace.empty()) prepare_profile(options.trace);
  context->load_pretrained = false;
  apply_runtime_options(recipe);
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  std::optional<OwnStream> stream;
  if (recipe.cuda_graph) stream.emplace(options.device);
  const int64_t batches = options.device.is_cuda() ? kGpuBatches : kCpuBatches;
  const BatchSource source(synthetic_images(recipe, batches * recipe.train.batch, context->classes),
                           recipe.dataset.augment, options.device);

  const PeakMemory memory(options.device);
  const auto model = build_model(recipe, *context);
  if (options.trained != nullptr) start_from(*model, *options.trained);
  model->to(options.device);
  if (options.task == BenchmarkTask::kInfer) {  // as load_run() does
    model->eval();
    pack_weights(*model);
  }
  const Work work =
      work_of(options.task,
              {.recipe = recipe, .model = *model, .source = source, .device = options.device});
  {
    Progress bar("warming up", warm_ups(options));
    for (int i = 0; i < warm_ups(options); ++i) {
      bar.update(i);
      work(nullptr);
    }
  }
  PhaseClock clock(options.device);
  // On a CPU the clock costs nothing, and a second search would take long.
  const bool at_once = options.task == BenchmarkTask::kSearch && options.device.is_cpu();
  const auto [steps, seconds] =
      run_for(options.seconds, work, options.device, at_once ? &clock : nullptr);
  BenchmarkResult result;
  result.peak_memory_mib = memory.mebibytes();
  result.steps = steps;
  result.step_ms = 1000 * seconds / static_cast<double>(steps);
  result.images_per_s = 1000 * static_cast<double>(recipe.train.batch) / result.step_ms;

  if (!options.trace.empty())
    write_profile(options.trace, options.device, [&] {
      for (int i = 0; i < traced_pieces(options); ++i) work(nullptr);
    });

  const int64_t clocked =
      at_once ? steps : run_for(options.seconds / 4, work, options.device, &clock).first;
  for (const auto& [phase, spent] : clock.phases())
    result.phases_ms.emplace_back(phase, 1000 * spent / static_cast<double>(clocked));
  return result;
}

}  // namespace remcaps
