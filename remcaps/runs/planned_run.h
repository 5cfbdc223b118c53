// A run of a sweep, which may not exist yet, and the files by which workers agree on who trains it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/recipe/recipe.h"
#include "remcaps/runs/file_lock.h"

namespace remcaps {

struct PlannedRun {
  /// In the order of a run's life. A run that --budget ended can go on, so it counts as
  /// interrupted; one that ended at its own time limit is finished.
  enum class State { kMissing, kInterrupted, kTraining, kFinished };

  /// Why the run in a folder is not the planned one, in a few words; empty if it is.
  using WhyNot = std::function<std::string(const std::filesystem::path& folder, State)>;

  /// A run of the same recipe and seed that is not the planned one.
  struct PassedOver {
    std::filesystem::path folder;
    std::string reason;
  };

  std::string recipe;
  int64_t seed = 0;
  std::filesystem::path folder;  ///< the run's folder, existing or not
  State state = State::kMissing;
  WhyNot why_not = {};  ///< empty: every run of this recipe and seed is the planned one
  std::vector<PassedOver> passed_over = {};
  std::shared_ptr<const PlannedRun> base = {};  ///< whose weights it starts from; null: nobody's
};

/// The run of this seed: parent/seed-<n>, as `remcaps train` has it; or the folder beside it,
/// seed-<n>-2 and so on, that has come further: a run that died before its first checkpoint keeps
/// its name. Folders that `why_not` names a reason for are passed over; if no other has the run,
/// its folder is the next free name. `parent` is <runs>/<recipe>.
PlannedRun find_run(const std::filesystem::path& parent, const std::string& recipe, int64_t seed,
                    PlannedRun::WhyNot why_not = {});

/// Looks for the run again: its folder, its state and what is passed over.
void find_again(PlannedRun& run);

/// Tells the wanted run from one that was trained otherwise: with other options, except those of
/// the machine (other_experiment()), or with other limits that have ended it before it came as far.
/// A run without a recipe.yaml is taken for the wanted one.
PlannedRun::WhyNot trained_otherwise(Recipe wanted);

/// A line for each run that was passed over, if the planned one is still to be made.
std::vector<std::string> notes_on_passed_over(const PlannedRun& run);

/// The state of the run in a folder. kMissing if it has no checkpoint and no process trains it.
PlannedRun::State state_of_run(const std::filesystem::path& folder);

/// Held by the worker that trains this seed, from before its folder exists. Nothing if another
/// process holds it. The lock ends with its process, so a worker that dies loses its claim.
std::optional<FileLock> claim_run(const std::filesystem::path& parent, int64_t seed);

/// The file of that lock.
std::filesystem::path claim_file(const std::filesystem::path& parent, int64_t seed);

/// seed-<n>.error: one line, why a worker could not train the run.
std::filesystem::path failure_file(const std::filesystem::path& parent, int64_t seed);

}  // namespace remcaps
