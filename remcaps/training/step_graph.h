// The training step as one CUDA graph.
#pragma once

#include <optional>

#include "remcaps/torch/device_graph.h"
#include "remcaps/training/step.h"

namespace remcaps {

/// Runs the full batches of an epoch as replays of one recorded step: a launch for the host instead
/// of a hundred, which can take longer than the kernels do.
///
/// Within an epoch margins, masks, learning rate and lambda are constants. What does change lies on
/// the device: a counter of the steps, which the step itself advances, and what it points at, the
/// epoch's order and random numbers (BatchSource) and Adam's numbers of every step. The first steps
/// of a process run as they are, then the step is recorded anew in every epoch. The host counts
/// along, so that a checkpoint can be taken, and a run resumed, after any step.
class StepGraph {
 public:
  /// Everything must outlive it.
  StepGraph(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
            torch::Device device);

  /// Whether the steps of a run can be recorded: on a GPU, asked for, the one-pass update, batches
  /// that are made there.
  static bool serves(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
                     torch::Device device);

  /// Step `position` of the epoch in `context`, from the weights as they are. False, with nothing
  /// done, where TrainingStep::run() has to do it: a batch that is not full, a strategy without an
  /// update rule, a step that could not be recorded (with a warning, once).
  bool run(int64_t position, PruningContext& context, EpochSums& sums);

  /// Whether the full batches of the epoch at hand are replays.
  bool replays() const { return graph_.recorded() && !stale_; }

 private:
  bool prepare(int64_t position, PruningContext& context, const EpochSums& sums);
  bool record();
  void work();

  const Recipe& recipe_;
  TrainingStep& step_;
  const BatchSource& source_;
  DeviceGraph graph_;
  int64_t batch_, steps_;  ///< images of a batch, batches of an epoch
  bool usable_ = true;
  int64_t warm_ups_ = 0;

  // Of the epoch at hand.
  int64_t epoch_ = -1;
  EpochSums sums_;  ///< the caller's tensors
  std::optional<UpdateRule> rule_;
  bool stale_ = true;    ///< the recording is of another epoch
  int64_t before_ = -1;  ///< Adam's steps before the epoch
  int64_t counter_ = 0;  ///< what position_ holds once the device is there

  torch::Tensor position_;  ///< int64 [1], the step to come
  torch::Tensor numbers_;   ///< float32 [steps, 3], Adam's
};

}  // namespace remcaps
