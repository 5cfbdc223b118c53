// What trained runs ended with, gathered over seeds.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"

namespace remcaps {

/// One finished run: its summary.json, or the copy of it that `remcaps collect` made.
struct RunResult {
  std::filesystem::path place;  ///< the run's folder, or the collected file
  std::string recipe;
  int64_t seed = 0;
  nlohmann::json summary;

  /// The part of the summary that belongs to a split; null where it was not measured.
  const nlohmann::json& split(const std::string& name) const;
};

/// Finished runs by recipe, ordered by seed. Of several runs of one recipe and seed the one with
/// the most epochs counts.
using RunResults = std::map<std::string, std::vector<RunResult>>;

/// Reads summary files, and looks for them (summary.json, seed-42.json) in folders and below.
/// Error: a path that does not exist, a summary that cannot be read.
RunResults find_results(const std::vector<std::filesystem::path>& paths);

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
