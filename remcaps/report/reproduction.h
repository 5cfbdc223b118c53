// Reproducing a table or figure of the paper: which runs it needs, and which of them exist.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/training/launch.h"
#include "remcaps/training/sweep.h"

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
  std::vector<std::string> only;       ///< patterns of recipes; empty: all
  Shard shard;                         ///< the share of this process
  int64_t workers = 1;                 ///< processes that share the budget
};

/// "main, keys"
std::string names_of(const std::vector<Reproduction>& wanted);

/// The runs of all their recipes, each once, and those that they start from. A run that is there
/// counts if it was trained as it would be now (trained_otherwise()).
std::vector<PlannedRun> plan_runs(const std::vector<Reproduction>& wanted,
                                  const ReproduceOptions& options);

/// Those runs of a plan that a table or figure needs.
std::vector<PlannedRun> runs_of(const Reproduction& reproduction,
                                const std::vector<PlannedRun>& plan,
                                const ReproduceOptions& options);

/// The run that a run starts from, as it is now. It must be finished first. None if the overrides
/// name other weights.
std::optional<PlannedRun> base_of(const PlannedRun& run);

/// The changes of its recipe that a new run needs, without the seed.
std::vector<std::string> overrides_of(const PlannedRun& run, const ReproduceOptions& options);

/// Called by train_missing(), to tell what it does.
struct SweepMessages {
  using Message = std::function<void(const PlannedRun&, const std::string&)>;
  Message on_start;    ///< with the time limit
  Message on_skip;     ///< with the reason why another run comes first
  Message on_failure;  ///< with the error
};

/// Trains or resumes the runs of this process's share that are not finished, in order. The runs
/// that are left share the rest of the budget equally. A run that fails (its data set is missing,
/// for example) is reported and the next one starts; Interrupted is passed on.
///
/// Other processes may work on the same folder. A run that another process trains is skipped, and
/// one that another could not train since this call began is not tried again. A process without a
/// share then waits for the runs of the others. It takes over a run whose process dies, and returns
/// when nothing is left.
void train_missing(std::vector<PlannedRun>& plan, const ReproduceOptions& options,
                   const SweepMessages& messages);

}  // namespace remcaps
