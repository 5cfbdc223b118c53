#include "remcaps/report/reproduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/report/paper_tables.h"
#include "remcaps/report/run_results.h"
#include "remcaps/runs/load.h"
#include "remcaps/training/interrupt.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

std::vector<std::string> both_arms(const std::string& base) {
  return {base, base + "-rem"};
}

std::vector<Reproduction> figures() {
  std::vector<Reproduction> result;
  const auto add = [&](const std::string& name, const std::string& kind, const std::string& about,
                       std::vector<std::string> recipes) {
    result.push_back({name, about, kind, std::move(recipes)});
  };
  add("saliency-imagenette", "saliency", "Saliency maps on Imagenette (figure 5)",
      both_arms("imagenette/eff-conv-capsnet"));
  add("saliency-dogs-vs-cats", "saliency", "Saliency maps on Dogs vs. Cats (figure 5)",
      both_arms("dogs-vs-cats/eff-conv-capsnet"));
  add("parse-tree", "parse-tree", "Parse tree of a CIFAR-10 image (figure 6)",
      both_arms("cifar10/multilayer-dr-capsnet"));
  add("levels", "levels", "Accuracy and entropy against K on MNIST (figure 7)",
      both_arms("mnist/dr-capsnet"));
  add("entropy", "entropy", "Entropy and accuracy against sparsity on MNIST (figure 8)",
      {"mnist/dr-capsnet-rem"});
  add("keys-mnist", "keys", "Parse trees of each class on MNIST (figure 9)",
      both_arms("mnist/dr-capsnet"));
  add("sparsity-mnist", "sparsity", "SNIP at several ratios on MNIST (figure 10)",
      paper_table("snip-sweep-mnist").recipes());
  add("perturbations", "perturbations", "Perturbed poses of a frozen DR-CapsNet+REM (figure 11)",
      {"mnist/dr-capsnet-rem", "mnist/dr-capsnet-rem-frozen-decoder"});
  add("couplings-epochs", "couplings-epochs", "Couplings at epochs 1 and 190 on MNIST (figure 12)",
      {"mnist/dr-capsnet"});
  add("couplings", "couplings", "Couplings with and without REM on MNIST (figure 13)",
      both_arms("mnist/dr-capsnet"));
  add("sparsity-cifar10", "sparsity", "SNIP at several ratios on CIFAR-10 (figure 14)",
      paper_table("snip-sweep-cifar10").recipes());
  for (const char* part : {"dataset", "classes", "samples"})
    for (const char* dataset : {"fashion-mnist", "cifar10"})
      add(fmt::format("parse-trees-{}-{}", part, dataset), fmt::format("parse-trees-{}", part),
          fmt::format("Parse trees of {}: {} (figures 15 to 20)", dataset, part),
          both_arms(fmt::format("{}/multilayer-dr-capsnet", dataset)));
  for (const char* view : {"azimuth", "elevation"})
    add(fmt::format("saliency-{}", view), "saliency-views",
        fmt::format("Saliency maps on smallNORB, novel {}s (figures 21, 22)", view),
        both_arms(fmt::format("smallnorb/dr-capsnet-{}", view)));
  return result;
}

std::vector<Reproduction> make_reproductions() {
  std::vector<Reproduction> result;
  for (const PaperTable& table : paper_tables())
    result.push_back({table.name, table.title, "", table.recipes()});
  for (Reproduction& figure : figures()) result.push_back(std::move(figure));
  return result;
}

bool ended_by_its_time_limit(const fs::path& folder) {
  return read_result(folder).summary.value("stopped", "") == "minutes";
}

PlannedRun::State state_of(const fs::path& folder) {
  const bool resumable = fs::exists(folder / "state.safetensors");
  if (fs::exists(folder / "summary.json") && !(resumable && ended_by_its_time_limit(folder)))
    return PlannedRun::State::kFinished;
  return resumable ? PlannedRun::State::kInterrupted : PlannedRun::State::kMissing;
}

// runs/<data set>/<recipe>/seed-<n>, as `remcaps train` has it; or the folder beside it, seed-<n>-2
// and so on, that has come further: a run that died before its first checkpoint keeps its name.
PlannedRun find_run(const std::string& recipe, int64_t seed, const ReproduceOptions& options) {
  const fs::path parent = options.runs / recipe;
  PlannedRun run{recipe, seed, RunFolder::name(parent, seed, 1), PlannedRun::State::kMissing};
  for (int64_t k = 1; fs::exists(RunFolder::name(parent, seed, k)); ++k) {
    const fs::path folder = RunFolder::name(parent, seed, k);
    const PlannedRun::State state = state_of(folder);
    if (state <= run.state) continue;
    run.folder = folder;
    run.state = state;
  }
  return run;
}

// A recipe that builds on another one's run names that run here.
std::optional<std::string> starts_from(const std::string& recipe) {
  if (recipe == "mnist/dr-capsnet-rem-frozen-decoder") return "mnist/dr-capsnet-rem";
  return std::nullopt;
}

// A fresh run may get another folder than the planned one, where that is taken.
void train_run(PlannedRun& run, const ReproduceOptions& options, std::optional<double> minutes) {
  if (run.state == PlannedRun::State::kInterrupted) {
    const RunFolder folder = RunFolder::open(run.folder);
    const Recipe recipe = read_run_recipe(folder);
    const DataSplits data = load_dataset(recipe.dataset, run_data_root(folder, options.data));
    Trainer(recipe, data, folder, options.device).run(minutes);
    return;
  }
  std::vector<std::string> overrides = options.overrides;
  overrides.push_back(fmt::format("train.seed={}", run.seed));
  if (const auto base = starts_from(run.recipe))
    overrides.push_back(
        fmt::format("train.start_from={}", find_run(*base, run.seed, options).folder.string()));
  const Recipe recipe = load_recipe(run.recipe, overrides);
  const fs::path root = data_root(options.data);
  const DataSplits data = load_dataset(recipe.dataset, root);
  const auto trainer = start_run(recipe, data, run.folder.parent_path(), root, options.device);
  run.folder = trainer->folder().path();
  trainer->run(minutes);
}

}  // namespace

const std::vector<Reproduction>& reproductions() {
  static const std::vector<Reproduction> all = make_reproductions();
  return all;
}

const Reproduction& reproduction(const std::string& name) {
  std::vector<std::string> names;
  for (const Reproduction& each : reproductions()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw UsageError(fmt::format("no table or figure {}{}", name, suggestion(name, names)));
}

std::vector<PlannedRun> plan_runs(const Reproduction& reproduction,
                                  const ReproduceOptions& options) {
  std::vector<PlannedRun> plan;
  for (const std::string& recipe : reproduction.recipes)
    for (const int64_t seed : options.seeds) plan.push_back(find_run(recipe, seed, options));
  return plan;
}

void train_missing(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_start,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_failure) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto left = std::count_if(plan.begin(), plan.end(), [](const PlannedRun& run) {
    return run.state != PlannedRun::State::kFinished;
  });
  for (PlannedRun& run : plan) {
    if (run.state == PlannedRun::State::kFinished) continue;
    std::optional<double> minutes;
    if (options.budget > 0) {
      const double used = std::chrono::duration<double>(Clock::now() - begin).count() / 60;
      // An exhausted budget still gives every run its first moments: a table without holes.
      minutes = std::max(options.budget - used, 0.01) / static_cast<double>(left);
    }
    on_start(run, minutes ? fmt::format("{:.1f} minutes", *minutes) : "no time limit");
    try {
      train_run(run, options, minutes);
      run.state = PlannedRun::State::kFinished;
      if (left > 1) stop_between_runs();
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      on_failure(run, error.what());
    }
    --left;
  }
}

}  // namespace remcaps
