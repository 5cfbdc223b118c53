// What the commands that look at a trained network's parse trees share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/runs/load.h"

namespace remcaps::cli {

/// RUN, --split, --checkpoint, --batch, --precision, --device, --data, --json.
struct RunOptions {
  std::string path, split, checkpoint, precision;
  int64_t batch = 128;
  bool json = false;
  PlaceOptions place;

  explicit RunOptions(std::string default_split) : split(std::move(default_split)) {}
  void add_to(CLI::App& command);

  LoadedRun load() const;
  /// That of the run, with the batch size asked for.
  EvaluateOptions evaluation(const LoadedRun& run) const;
};

/// "11" or "11,6": one K, or one per routing layer. UsageError names the flag.
std::vector<int64_t> parse_levels(const std::string& text);

/// find_levels() with a progress bar over all its passes. The form of the quantizer is the
/// recipe's.
LevelChoice choose_with_progress(const LoadedRun& run, const BatchSource& source,
                                 LevelOptions options, EvaluateOptions evaluation);

/// The recipe's quantizers with other levels where `levels` is not empty.
Quantizers quantizers_of(const LoadedRun& run, const std::vector<int64_t>& levels);

}  // namespace remcaps::cli
