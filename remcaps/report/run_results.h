// What trained runs ended with, gathered over seeds.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"
#include "remcaps/report/recipe_changes.h"

namespace remcaps {

/// One finished run: its summary.json, or the copy of it that `remcaps collect` made.
struct RunResult {
  std::filesystem::path place;  ///< the run's folder, or the collected file
  std::string recipe;
  int64_t seed = 0;
  nlohmann::json summary;  ///< as the file has it, and find_results() adds "changed"

  /// The options in which it differs from the recipe of its name, where that is known.
  OptionMap changed() const;
  /// The part of the summary that belongs to a split; null where it was not measured.
  const nlohmann::json& split(const std::string& name) const;
};

/// Finished runs by recipe, ordered by seed.
using RunResults = std::map<std::string, std::vector<RunResult>>;

struct LeftOutRun {
  std::string recipe;
  std::string note;  ///< one line: which run it is, and why
};

struct FoundResults {
  RunResults results;
  std::vector<LeftOutRun> left_out;

  /// The notes on runs of these recipes, or of all.
  std::vector<std::string> notes(const std::vector<std::string>& recipes) const;
  std::vector<std::string> notes() const;
};

/// Reads summary files, and looks for them (summary.json, seed-42.json) in folders and below. A run
/// on other data than its recipe's is left out. Of several runs of one recipe and seed the one
/// nearest to the recipe counts, of those the one with the most epochs. Error: a path that does not
/// exist, a summary that cannot be read.
FoundResults find_results(const std::vector<std::filesystem::path>& paths);

/// The summary of a finished run's folder.
RunResult read_result(const std::filesystem::path& folder);

/// A number over seeds. Deviations are those of numpy.std (of all values, not of a sample).
struct Aggregate {
  double value = 0;
  std::vector<int64_t> seeds;
  std::optional<double> over_seeds;    ///< standard deviation; not for medians
  std::optional<double> over_classes;  ///< entropy: of the seeds' mean entropy of each class
};

double median(std::vector<double> values);

/// Nothing where no run has the number.
std::optional<Aggregate> aggregate(const RunResults& results, const PaperCell& cell);

/// The run with the highest accuracy on the test set (with quantized couplings where measured).
const RunResult& best_run(const std::vector<RunResult>& runs);

}  // namespace remcaps
