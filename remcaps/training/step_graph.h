// The training step as a CUDA graph.
#pragma once

#include <optional>

#include "remcaps/torch/device_graph.h"
#include "remcaps/training/step.h"

namespace remcaps {

/// Runs the full batches of an epoch as replays of one recorded step. The host launches one graph
/// instead of about a hundred kernels; launching those can take longer than running them.
///
/// Margins, masks, learning rate and lambda are constant within an epoch. The values that change
/// are on the device: a counter of steps, which the step itself increments, and what the counter
/// indexes, namely the order and random numbers of the epoch (BatchSource) and Adam's numbers of
/// every step. The first steps of a process are not recorded. After that the step is recorded once
/// per epoch. The host counts the steps too, so that the run can be saved and resumed after any
/// step.
class StepGraph {
 public:
  /// All arguments must outlive it.
  StepGraph(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
            torch::Device device);

  /// Whether the steps of a run can be recorded. This needs a GPU, `cuda_graph`, the one-pass
  /// update and batches that are made on the GPU.
  static bool serves(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
                     torch::Device device);

  /// Runs the step `position` of the epoch in `context`. Returns false and does nothing if
  /// TrainingStep::run() must do it: if the batch is not full, the strategy has no update rule, or
  /// the step could not be recorded (this prints a warning once).
  bool run(int64_t position, PruningContext& context, EpochSums& sums);

  /// Whether the full batches of the current epoch are replays.
  bool replays() const { return graph_.recorded() && !stale_; }

 private:
  bool prepare(int64_t position, PruningContext& context, const EpochSums& sums);
  bool record();
  void work();

  const Recipe& recipe_;
  TrainingStep& step_;
  const BatchSource& source_;
  DeviceGraph graph_;
  int64_t batch_, steps_;  ///< images per batch, batches per epoch
  bool usable_ = true;
  int64_t warm_ups_ = 0;

  // The current epoch.
  int64_t epoch_ = -1;
  EpochSums sums_;  ///< shares the tensors of the caller
  std::optional<UpdateRule> rule_;
  bool stale_ = true;    ///< the recording belongs to another epoch
  int64_t before_ = -1;  ///< Adam's steps before this epoch
  int64_t counter_ = 0;  ///< the value of position_ when the device has done all steps

  torch::Tensor position_;  ///< int64 [1], the next step
  torch::Tensor numbers_;   ///< float32 [steps, 3], Adam's
};

}  // namespace remcaps
