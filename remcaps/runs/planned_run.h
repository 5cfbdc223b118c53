// A run of a sweep, which may not exist yet, and the files by which workers agree on who trains it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "remcaps/runs/file_lock.h"

namespace remcaps {

struct PlannedRun {
  /// A run that a time limit ended can go on, so it counts as interrupted.
  enum class State {
    kMissing,
    kInterrupted,
    kTraining,
    kFinished
  };  // in the order of a run's life
  std::string recipe;
  int64_t seed = 0;
  std::filesystem::path folder;  ///< the run's folder, existing or not
  State state = State::kMissing;
};

/// The run of this seed: parent/seed-<n>, as `remcaps train` has it; or the folder beside it,
/// seed-<n>-2 and so on, that has come further: a run that died before its first checkpoint keeps
/// its name. `parent` is <runs>/<recipe>.
PlannedRun find_run(const std::filesystem::path& parent, const std::string& recipe, int64_t seed);

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
