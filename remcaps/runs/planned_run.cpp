#include "remcaps/runs/planned_run.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/recipe/recipe_changes.h"
#include "remcaps/runs/run_folder.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

// How a run ended, from its summary.
struct Ending {
  std::string stopped;
  double epochs = 0, seconds = 0, own_minutes = 0;

  bool reaches_minutes(double minutes) const { return minutes > 0 && seconds >= 60 * minutes; }
  bool at_a_limit() const { return stopped == "epochs" || stopped == "minutes"; }
  bool out_of_budget() const { return stopped == "minutes" && !reaches_minutes(own_minutes); }
};

Ending read_ending(const fs::path& file) {
  const auto summary = nlohmann::json::parse(read_file(file), nullptr, false);
  check(summary.is_object(), "{}: not a run's summary", file.string());
  try {
    Ending ending{summary.value("stopped", ""), summary.value("epochs", 0.0),
                  summary.value("seconds", 0.0)};
    const auto options = summary.value("options", OptionMap());
    if (const auto found = options.find("train.minutes"); found != options.end())
      ending.own_minutes = std::strtod(found->second.c_str(), nullptr);
    return ending;
  } catch (const nlohmann::json::exception&) {
    fail("{}: not a run's summary", file.string());
  }
}

// Why a finished run has not come as far as the wanted one would; empty if it has.
std::string cut_short(const Ending& ending, const TrainOptions& wanted) {
  const bool enough = !ending.at_a_limit() || ending.reaches_minutes(wanted.minutes) ||
                      (wanted.epochs > 0 && ending.epochs >= static_cast<double>(wanted.epochs));
  if (enough) return "";
  return fmt::format("{} ended it after {:g} epoch{}",
                     ending.stopped == "minutes" ? "a time limit" : "train.epochs", ending.epochs,
                     ending.epochs == 1 ? "" : "s");
}

}  // namespace

PlannedRun::State state_of_run(const fs::path& folder) {
  const bool resumable = fs::exists(folder / "state.safetensors");
  if (FileLock::note_of_holder(folder / ".lock")) return PlannedRun::State::kTraining;
  if (fs::exists(folder / "summary.json") &&
      !(resumable && read_ending(folder / "summary.json").out_of_budget()))
    return PlannedRun::State::kFinished;
  return resumable ? PlannedRun::State::kInterrupted : PlannedRun::State::kMissing;
}

PlannedRun::WhyNot trained_otherwise(Recipe wanted) {
  // Made when a run is there to compare with: it builds the network.
  const auto expected = std::make_shared<OptionMap>();
  return [wanted = std::move(wanted), expected](const fs::path& folder, PlannedRun::State state) {
    if (!fs::exists(folder / "recipe.yaml")) return std::string();
    Recipe own;
    try {
      own = read_run_recipe(RunFolder::open(folder));
    } catch (const Error& error) {  // of another version
      return std::string(error.what());
    }
    if (expected->empty()) *expected = complete_options(wanted);
    std::vector<std::string> reasons;
    if (state == PlannedRun::State::kFinished) {
      reasons.push_back(cut_short(read_ending(folder / "summary.json"), wanted.train));
    } else {
      if (own.train.epochs != wanted.train.epochs)
        reasons.push_back(fmt::format("train.epochs={}", own.train.epochs));
      if (own.train.minutes != wanted.train.minutes)
        reasons.push_back(fmt::format("train.minutes={}", own.train.minutes));
    }
    for (const auto& [key, value] :
         other_experiment(changed_options(*expected, yaml_paths(own.to_yaml()))))
      reasons.push_back(fmt::format("{}={}", key, value));
    std::erase(reasons, "");
    return fmt::format("{}", fmt::join(reasons, ", "));
  };
}

void find_again(PlannedRun& run) {
  const fs::path parent = run.folder.parent_path();
  run.folder = RunFolder::name(parent, run.seed, 1);
  run.state = PlannedRun::State::kMissing;
  run.passed_over.clear();
  int64_t k = 1;
  for (; fs::exists(RunFolder::name(parent, run.seed, k)); ++k) {
    const fs::path folder = RunFolder::name(parent, run.seed, k);
    const PlannedRun::State state = state_of_run(folder);
    if (state <= run.state) continue;
    if (std::string reason = run.why_not ? run.why_not(folder, state) : ""; !reason.empty()) {
      run.passed_over.push_back({folder, std::move(reason)});
      continue;
    }
    run.folder = folder;
    run.state = state;
  }
  if (run.state == PlannedRun::State::kMissing && !run.passed_over.empty())
    run.folder = RunFolder::name(parent, run.seed, k);
}

PlannedRun find_run(const fs::path& parent, const std::string& recipe, int64_t seed,
                    PlannedRun::WhyNot why_not) {
  PlannedRun run;
  run.recipe = recipe;
  run.seed = seed;
  run.folder = RunFolder::name(parent, seed, 1);
  run.why_not = std::move(why_not);
  find_again(run);
  return run;
}

std::vector<std::string> notes_on_passed_over(const PlannedRun& run) {
  std::vector<std::string> notes;
  if (run.state == PlannedRun::State::kMissing)
    for (const auto& other : run.passed_over)
      notes.push_back(fmt::format("{} is passed over ({}); the new run goes to {}",
                                  other.folder.string(), other.reason, run.folder.string()));
  return notes;
}

std::optional<FileLock> claim_run(const fs::path& parent, int64_t seed) {
  make_folder(parent);
  return FileLock::take(claim_file(parent, seed));
}

fs::path claim_file(const fs::path& parent, int64_t seed) {
  return parent / fmt::format(".seed-{}.lock", seed);
}

fs::path failure_file(const fs::path& parent, int64_t seed) {
  return parent / fmt::format("seed-{}.error", seed);
}

}  // namespace remcaps
