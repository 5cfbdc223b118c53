// state.safetensors: the full state of a run.
#pragma once

#include <filesystem>
#include <limits>

#include "remcaps/models/model.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/training/adam.h"
#include "remcaps/training/epoch_sums.h"

namespace remcaps {

/// How far a run has come.
struct RunProgress {
  int64_t epoch = 0;     ///< the current one, from 0
  int64_t position = 0;  ///< steps of the current epoch that are done
  int64_t step = 0;      ///< steps since the run began
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_epoch = -1;
  double validation_accuracy = 0;  ///< of the last complete epoch
  double seconds = 0;              ///< of training, over all resumes
};

/// With this file a killed run goes on as if it had never been killed. It holds no state of a
/// random generator: after initialisation every random number is counter-based.
void save_state(const std::filesystem::path& path, const CapsNet& model, const Adam& adam,
                const Pruner& pruner, const RunProgress& progress, const EpochSums& sums);

/// Restores everything. Error if something does not fit.
RunProgress load_state(const std::filesystem::path& path, CapsNet& model, Adam& adam,
                       Pruner& pruner, EpochSums& sums);

}  // namespace remcaps
