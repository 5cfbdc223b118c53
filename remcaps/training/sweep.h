// Many runs, many workers: each run is trained once.
#pragma once

#include <functional>

#include "remcaps/runs/planned_run.h"

namespace remcaps {

/// What a worker found or did when it came to a run.
enum class Turn {
  kTrained,
  kFinishedBefore,
  kInTraining,  ///< by another process
};

/// Calls `train`, which trains or resumes the run as its state says, if the run is neither finished
/// nor in training. Meanwhile the run is claimed, so that no other worker begins it. `run` is
/// looked up again first: another worker may have come further with it. If `train` throws, the
/// reason is written to failure_file() and the exception passed on; Interrupted is no failure.
Turn take_turn(PlannedRun& run, const std::function<void(PlannedRun&)>& train);

/// "1/4": the first of four shares.
struct Shard {
  int64_t index = 1, count = 1;

  /// Whether run `k` of a plan, from 0, is in this share. Shares do not depend on what is finished,
  /// so workers that start at different times agree on them.
  bool has(size_t k) const { return static_cast<int64_t>(k) % count == index - 1; }
  bool everything() const { return count == 1; }
};

/// Reads "I/N". If the text is empty: the place in a Slurm job array, from its variables
/// (SLURM_ARRAY_TASK_ID and so on); outside of one, everything. UsageError if it is anything else.
Shard parse_shard(const std::string& text);

}  // namespace remcaps
