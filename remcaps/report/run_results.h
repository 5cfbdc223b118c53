// The results of finished runs, grouped by what was run and averaged over seeds.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/recipe/recipe_changes.h"
#include "remcaps/report/paper_tables.h"

namespace remcaps {

/// One finished run: its summary.json, or the copy of it that `remcaps collect` made.
struct RunResult {
  std::filesystem::path place;  ///< the run's folder, or the collected file
  std::string recipe;
  int64_t seed = 0;
  nlohmann::json summary;  ///< the file's content; find_results() adds "changed"

  /// The options that differ from the recipe of its name, as far as that is known.
  OptionMap changed() const;
  /// The key of its group in Experiments. How long a run may take and how the machine computes
  /// (recipe_changes.h) make no difference.
  std::string experiment() const;
  /// What to know beside its numbers: how its data differ from the official ones, and the trained
  /// network it started from. May be empty.
  std::string note() const;
  /// The part of the summary that belongs to a split; null if it was not measured.
  const nlohmann::json& split(const std::string& name) const;
};

/// Finished runs of one recipe, ordered by seed, grouped by what was changed of the recipe:
/// "train.lr=0.01", or "" for the recipe as it is. Only runs of one group are averaged.
using Experiments = std::map<std::string, std::vector<RunResult>>;
using RunResults = std::map<std::string, Experiments>;  ///< by recipe

struct LeftOutRun {
  std::string recipe;
  std::string note;  ///< one line: which run, and why
};

struct FoundResults {
  RunResults results;
  std::vector<LeftOutRun> left_out;

  /// The notes on runs of these recipes, or of all.
  std::vector<std::string> notes(const std::vector<std::string>& recipes) const;
  std::vector<std::string> notes() const;
};

/// Reads summary files, and looks for them (summary.json, seed-42.json) in folders and below. A run
/// on other data than its recipe's is left out. If several runs of one experiment have the same
/// seed, the one with the most epochs counts. Error: a path that does not exist, a summary that
/// cannot be read.
FoundResults find_results(const std::vector<std::filesystem::path>& paths);

/// The summary of a finished run: its folder, or a collected file.
RunResult read_result(const std::filesystem::path& place);

/// A number over seeds. Deviations are numpy.std's (population, not sample).
struct Aggregate {
  double value = 0;
  std::vector<int64_t> seeds;
  std::optional<double> over_seeds;    ///< standard deviation; not for medians
  std::optional<double> over_classes;  ///< entropy: of the seeds' mean entropy of each class
};

/// The number of a cell over the runs of one experiment with its recipe; nothing if no run has it.
std::optional<Aggregate> aggregate(const RunResults& results, const PaperCell& cell,
                                   const std::string& experiment = "");

/// The run with the highest accuracy on the test set (with quantized couplings if measured).
const RunResult& best_run(const std::vector<RunResult>& runs);

}  // namespace remcaps
