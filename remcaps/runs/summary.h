// The results of a finished run: summary.json.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remcaps/evaluation/split_trees.h"

namespace remcaps {

struct RunSummary {
  std::string folder, recipe, model, dataset, device;
  std::string machine;                         ///< device_name()
  std::string data_note;                       ///< Dataset::note of the test set
  std::map<std::string, std::string> options;  ///< the resolved recipe, by yaml_paths()
  int64_t seed = 0;
  std::string stopped;     ///< "epochs", "accuracy", "minutes" or "patience"
  std::string checkpoint;  ///< "last" of a pruned run, otherwise "best"
  int64_t checkpoint_epoch = 0, epochs = 0, steps = 0;
  double best_validation_loss = 0;
  /// The test set, with that checkpoint. No samples if the data set has no test split.
  SplitMeasurement test;
  std::map<std::string, SplitMeasurement> extra;  ///< the data set's other labelled splits
  int64_t parameters = 0, parameters_nonzero = 0;
  /// Children of routing layers, and those with weights; 0 if the network has no such layer.
  int64_t capsules = 0, capsules_left = 0;
  double sparsity = 0;  ///< share of zeros, published definition
  double seconds = 0;   ///< of training, over all resumes
};

nlohmann::json to_json(const RunSummary& summary);

/// Two lines of text, and one with the note if there is one.
std::string to_text(const RunSummary& summary);

}  // namespace remcaps
