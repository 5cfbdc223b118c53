// Reproducing a table or figure of the paper: which runs it needs, and which of them exist.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/training/launch.h"

namespace remcaps {

/// A table or a figure, and the recipes that it needs runs of.
struct Reproduction {
  std::string name;
  std::string about;
  std::string figure;  ///< kind of figure to draw; empty: a table of this name is printed
  std::vector<std::string> recipes;
};

/// All tables, then all figures that show trained networks.
const std::vector<Reproduction>& reproductions();
/// UsageError suggests the nearest name.
const Reproduction& reproduction(const std::string& name);

struct ReproduceOptions {
  std::vector<int64_t> seeds = {42};
  double budget = 0;  ///< minutes for all runs together; 0: no limit
  std::filesystem::path runs = "runs";
  std::string data;  ///< --data
  torch::Device device = torch::kCPU;
  std::vector<std::string> overrides;  ///< "key=value", for every recipe
};

/// One run of a reproduction.
struct PlannedRun {
  /// A run that a time limit ended can go on, so it counts as interrupted.
  enum class State { kMissing, kInterrupted, kFinished };  // in the order of a run's life
  std::string recipe;
  int64_t seed = 0;
  std::filesystem::path folder;  ///< the run's folder, existing or not
  State state = State::kMissing;
};
std::vector<PlannedRun> plan_runs(const Reproduction& reproduction,
                                  const ReproduceOptions& options);

/// Trains or resumes the runs that are not finished, in order. The runs that are left share the rest
/// of the budget equally. A run that fails (its data set is missing, for example) is reported to
/// `on_failure` and the next one starts; Interrupted is passed on.
void train_missing(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_start,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_failure);

}  // namespace remcaps
