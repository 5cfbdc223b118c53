// Reproducing a table or figure of the paper: what is to be trained, and what of it is there
// already.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/training/launch.h"

namespace remcaps {

/// A table or a figure, with the recipes whose runs it shows.
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
  double budget = 0;  ///< minutes for all runs together; 0: as long as the recipes take
  std::filesystem::path runs = "runs";
  std::string data;  ///< --data
  torch::Device device = torch::kCPU;
  std::vector<std::string> overrides;  ///< "key=value", for every recipe
};

/// One run of a reproduction.
struct PlannedRun {
  /// A run that a time limit ended has more to do, as an interrupted one has.
  enum class State { kMissing, kInterrupted, kFinished };  // in the order they are passed through
  std::string recipe;
  int64_t seed = 0;
  std::filesystem::path folder;  ///< where it is or will be
  State state = State::kMissing;
};
std::vector<PlannedRun> plan_runs(const Reproduction& reproduction,
                                  const ReproduceOptions& options);

/// Trains and resumes what is not finished, in order. The time left of the budget is shared equally
/// among the runs left. A run that fails (its data set is not there, say) is reported to
/// `on_failure` and the others go on; Interrupted is passed on.
void train_missing(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_start,
                   const std::function<void(const PlannedRun&, const std::string&)>& on_failure);

}  // namespace remcaps
