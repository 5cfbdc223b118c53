// The state of every run in a folder, from the files that runs and workers keep there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/runs/planned_run.h"

namespace remcaps {

/// What a run in training writes about once a second, into the file of its lock.
struct TrainingNote {
  int64_t epoch = 0;                      ///< from 0
  int64_t images_done = 0, images = 0;    ///< of this epoch
  double loss = 0, accuracy = 0;          ///< of this epoch so far
  double seconds = 0, limit_seconds = 0;  ///< of training; a limit of 0 is none
};
std::string to_text(const TrainingNote& note);

struct RunStatus {
  enum class State {
    kWaiting,   ///< planned; no worker has begun it
    kStarting,  ///< claimed by a worker that reads data and builds the network
    kRunning,
    kStopped,  ///< begun, not finished, and no process trains it: interrupted or killed
    kFinished,
    kFailed,  ///< stopped by an error; `reason` says which
  };
  State state = State::kWaiting;
  std::string recipe;
  int64_t seed = 0;
  std::filesystem::path folder;
  /// Complete epochs; while an epoch is under way, a part of it is counted.
  double epochs = 0;
  int64_t most_epochs = 0;  ///< the recipe's limit; 0: none
  std::optional<double> loss, validation_accuracy, sparsity, entropy;
  std::optional<double> test_accuracy;  ///< of a finished run
  std::optional<double> seconds_left;   ///< until the nearest limit
  /// seconds_left is until patience ends: longer if the validation loss improves.
  bool at_least = false;
  std::string reason;  ///< of kFailed, one line
};

std::string state_name(RunStatus::State state);

/// The runs in a folder and its sub-folders, and the runs of a plan there that have not begun.
/// Sorted by recipe and seed.
std::vector<RunStatus> find_statuses(const std::filesystem::path& folder);

/// The state of a run that may not exist yet, as it is now.
RunStatus status_of(PlannedRun run);

nlohmann::json to_json(const RunStatus& status);

/// Writes <runs>/<name>.plan.json, the runs that a sweep wants.
void write_plan(const std::filesystem::path& runs, const std::string& name,
                const std::vector<PlannedRun>& plan);

}  // namespace remcaps
