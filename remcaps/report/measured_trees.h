// The numbers of runs' parse trees that charts show: measured on a network, or read from a summary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/report/shown_runs.h"

namespace remcaps {

struct MeasuredTrees {
  std::string label;  ///< differs from the labels of the other runs
  std::string recipe, dataset;
  std::string data_line;  ///< "fashion-mnist, 10,000 test images"
  std::vector<std::string> class_names;
  std::string strategy;           ///< of pruning; "none"
  double sparsity = 0;            ///< 0..1
  double accuracy_quantized = 0;  ///< 0..1
  double entropy = 0, median_keys = 0;
  std::vector<double> entropy_per_class;
  /// Means over the images; capsules of the routing layers that have a weight left; weights that are
  /// not zero. Summaries of earlier versions do not have them.
  std::optional<double> effective_parts, capsules_left, parameters_left;
  std::vector<int64_t> keys_per_class, samples_per_class;
};

/// Whether a run is given by its summary: summary.json, or a file of `remcaps collect`.
bool is_summary_file(const std::string& run);

/// The trees of every run, in order. The runs are all summaries, or none is. Networks are measured
/// with their effective parts if `parts`.
std::vector<MeasuredTrees> measured_trees(const RunSelection& selection, bool parts = false);

}  // namespace remcaps
