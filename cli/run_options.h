// Options that the commands for trained networks share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/distributed.h"
#include "cli/options.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/runs/load.h"

namespace remcaps::cli {

/// RUN, --split, --checkpoint, --batch, --precision, --device, --data, --threads, --distributed,
/// --timeout, --json.
struct RunOptions {
  std::string path, split, checkpoint, precision;
  int64_t batch = 128;
  bool json = false;
  PlaceOptions place;
  DistributedOptions distributed;

  explicit RunOptions(std::string default_split) : split(std::move(default_split)) {}
  void add_to(CLI::App& command);

  /// Calls `work` with the loaded run and the processes that a launcher started, or null.
  void with_run(const std::function<void(const LoadedRun&, ProcessGroup*)>& work) const;
  /// The run's options, with the batch size of the command line.
  EvaluateOptions evaluation(const LoadedRun& run, ProcessGroup* group) const;

 private:
  LoadedRun load(torch::Device device) const;
};

/// "11" or "11,6": one K, or one per routing layer. UsageError names the flag.
std::vector<int64_t> parse_levels(const std::string& text);

/// find_levels() with a progress bar. The form of the quantizer is the recipe's.
LevelChoice choose_with_progress(const LoadedRun& run, const BatchSource& source,
                                 LevelOptions options, EvaluateOptions evaluation);

/// The recipe's quantizers, with `levels` instead of its levels if that is not empty.
Quantizers quantizers_of(const LoadedRun& run, const std::vector<int64_t>& levels);

}  // namespace remcaps::cli
