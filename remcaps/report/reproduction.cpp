#include "remcaps/report/reproduction.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/text.h"
#include "remcaps/report/find_named.h"
#include "remcaps/report/paper_tables.h"
#include "remcaps/runs/load.h"
#include "remcaps/torch/runtime.h"
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

// The recipe that a recipe's run starts from, unless the user gives other weights.
std::optional<std::string> starts_from(const Recipe& recipe) {
  const YAML::Node& model = recipe.model_options;
  if (recipe.train.start_recipe.empty() || !recipe.train.start_from.empty() ||
      model["backbone_weights"])
    return std::nullopt;
  return recipe.train.start_recipe;
}

// The recipes of tables and figures, each once and after the one that its run starts from.
std::vector<std::string> recipes_with_bases(const std::vector<Reproduction>& wanted,
                                            const ReproduceOptions& options) {
  std::vector<std::string> recipes;
  const auto add = [&](const std::string& recipe) {
    if (std::find(recipes.begin(), recipes.end(), recipe) == recipes.end())
      recipes.push_back(recipe);
  };
  for (const Reproduction& each : wanted)
    for (const std::string& recipe : each.recipes) {
      if (const auto base = starts_from(load_recipe(recipe, options.overrides))) add(*base);
      add(recipe);
    }
  return recipes;
}

// A new run gets another folder than the planned one if that is taken.
void train_run(PlannedRun& run, const ReproduceOptions& options, std::optional<double> minutes) {
  if (run.state == PlannedRun::State::kInterrupted) {
    const RunFolder folder = RunFolder::open(run.folder);
    const Recipe recipe = read_run_recipe(folder);
    const DataSplits data = load_dataset(recipe.dataset, run_data_root(folder, options.data));
    Trainer(recipe, data, folder, options.device).run(minutes);
    return;
  }
  std::vector<std::string> overrides = overrides_of(run, options);
  overrides.push_back(fmt::format("train.seed={}", run.seed));
  const Recipe recipe = load_recipe(run.recipe, overrides);
  const fs::path root = data_root(options.data);
  const DataSplits data = load_dataset(recipe.dataset, root);
  const auto trainer = start_run(recipe, data, run.folder.parent_path(), root, options.device);
  run.folder = trainer->folder().path();
  trainer->run(minutes);
}

// One worker's work on a plan.
class Worker {
 public:
  Worker(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
         const SweepMessages& messages)
      : options_(options), messages_(messages) {
    for (size_t k = 0; k < plan.size(); ++k)
      if (options.shard.has(k) && plan[k].state != PlannedRun::State::kFinished)
        open_.push_back(&plan[k]);
  }

  void work() {
    while (!open_.empty()) {
      const size_t before = open_.size();
      pass();
      // Another worker's share is its own business; its runs are not waited for.
      if (open_.empty() || !options_.shard.everything()) return;
      if (open_.size() == before) std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void pass() {
    std::vector<PlannedRun*> later;
    for (size_t k = 0; k < open_.size(); ++k) {
      left_ = open_.size() - k + later.size();
      if (!visit(*open_[k])) later.push_back(open_[k]);
    }
    open_ = std::move(later);
  }

  // False if the run must be visited again.
  bool visit(PlannedRun& run) {
    try {
      const auto base = base_of(run);
      if (base && base->state != PlannedRun::State::kFinished) {
        check(will_come(*base), "needs {}, seed {}, which is not finished", base->recipe,
              base->seed);
        return skip(run, fmt::format("waits for {}, seed {}", base->recipe, base->seed));
      }
      check_not_failed_meanwhile(run);
      const Turn turn = take_turn(run, [this](PlannedRun& each) { train(each); });
      if (turn == Turn::kInTraining) return skip(run, "another process is training it");
      if (turn == Turn::kTrained && left_ > 1) stop_between_runs();
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      failed_.insert(&run);
      messages_.on_failure(run, error_text(error));
    }
    return true;
  }

  // If a run fails, only one of several workers tries it.
  void check_not_failed_meanwhile(const PlannedRun& run) const {
    const fs::path file = failure_file(run.folder.parent_path(), run.seed);
    std::error_code error;
    const auto written = fs::last_write_time(file, error);
    if (!error && written > file_begin_) fail("{}", first_line(read_file(file)));
  }

  // Whether this worker or another will finish the run.
  bool will_come(const PlannedRun& base) const {
    if (base.state == PlannedRun::State::kTraining || !options_.shard.everything()) return true;
    return std::any_of(open_.begin(), open_.end(), [&](const PlannedRun* each) {
      return each->recipe == base.recipe && each->seed == base.seed && !failed_.contains(each);
    });
  }

  void train(PlannedRun& run) {
    std::optional<double> minutes;
    if (options_.budget > 0) {
      const double used = std::chrono::duration<double>(Clock::now() - begin_).count() / 60;
      // An exhausted budget still gives every run its first moments: a table without holes.
      const auto at_once = static_cast<double>(std::min<size_t>(options_.workers, left_));
      minutes = std::max(options_.budget - used, 0.01) * at_once / static_cast<double>(left_);
    }
    messages_.on_start(run, minutes ? fmt::format("{:.1f} minutes", *minutes) : "no time limit");
    train_run(run, options_, minutes);
  }

  // Says it once.
  bool skip(const PlannedRun& run, const std::string& reason) {
    if (said_.insert(run.recipe + reason + std::to_string(run.seed)).second)
      messages_.on_skip(run, reason);
    return false;
  }

  const ReproduceOptions& options_;
  const SweepMessages& messages_;
  const Clock::time_point begin_ = Clock::now();
  const fs::file_time_type file_begin_ = fs::file_time_type::clock::now();
  std::vector<PlannedRun*> open_;
  size_t left_ = 0;  ///< runs that share the rest of the budget
  std::set<const PlannedRun*> failed_;
  std::set<std::string> said_;
};

}  // namespace

const std::vector<Reproduction>& reproductions() {
  static const std::vector<Reproduction> all = make_reproductions();
  return all;
}

const Reproduction& reproduction(const std::string& name) {
  return find_named(reproductions(), "table or figure", name);
}

std::string names_of(const std::vector<Reproduction>& wanted) {
  std::vector<std::string> names;
  for (const Reproduction& each : wanted) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<PlannedRun> plan_runs(const std::vector<Reproduction>& wanted,
                                  const ReproduceOptions& options) {
  const auto matches = [&](const std::string& recipe) {
    return options.only.empty() ||
           std::any_of(options.only.begin(), options.only.end(), [&](const std::string& pattern) {
             return ::fnmatch(pattern.c_str(), recipe.c_str(), 0) == 0;
           });
  };
  const std::vector<std::string> recipes = recipes_with_bases(wanted, options);
  const auto planned = [&](Recipe wanted, const std::string& recipe, int64_t seed) {
    wanted.train.seed = seed;
    return find_run(options.runs / recipe, recipe, seed, trained_otherwise(std::move(wanted)));
  };
  std::vector<PlannedRun> plan;
  for (const std::string& recipe : recipes) {
    if (!matches(recipe)) continue;
    const Recipe wanted = load_recipe(recipe, options.overrides);
    const auto base = starts_from(wanted);
    const Recipe wanted_base = base ? load_recipe(*base, options.overrides) : Recipe();
    for (const int64_t seed : options.seeds) {
      PlannedRun& run = plan.emplace_back(planned(wanted, recipe, seed));
      if (base) run.base = std::make_shared<PlannedRun>(planned(wanted_base, *base, seed));
    }
  }
  if (plan.empty())
    throw UsageError(fmt::format("--only {}: no recipe of {} matches; it has {}",
                                 fmt::join(options.only, " "), names_of(wanted),
                                 fmt::join(recipes, ", ")));
  return plan;
}

std::vector<PlannedRun> runs_of(const Reproduction& reproduction,
                                const std::vector<PlannedRun>& plan,
                                const ReproduceOptions& options) {
  std::vector<PlannedRun> runs;
  for (const std::string& recipe : recipes_with_bases({reproduction}, options))
    std::copy_if(plan.begin(), plan.end(), std::back_inserter(runs),
                 [&](const PlannedRun& run) { return run.recipe == recipe; });
  return runs;
}

std::optional<PlannedRun> base_of(const PlannedRun& run) {
  if (run.base == nullptr) return std::nullopt;
  PlannedRun base = *run.base;
  find_again(base);
  return base;
}

std::vector<std::string> overrides_of(const PlannedRun& run, const ReproduceOptions& options) {
  std::vector<std::string> overrides = options.overrides;
  if (const auto base = base_of(run))
    overrides.push_back(fmt::format("train.start_from={}", base->folder.string()));
  return overrides;
}

void train_missing(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
                   const SweepMessages& messages) {
  Worker(plan, options, messages).work();
}

}  // namespace remcaps
