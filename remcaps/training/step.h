// One step of training: forward, loss, backward, pruning, update.
#pragma once

#include <memory>

#include "remcaps/data/batches.h"
#include "remcaps/evaluation/phase_clock.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/process_group.h"
#include "remcaps/training/adam.h"
#include "remcaps/training/epoch_sums.h"

namespace remcaps {

/// A training step: the network of a recipe with its optimiser and pruning strategy. The trainer
/// and `remcaps bench` both use it.
class TrainingStep {
 public:
  /// All arguments must outlive it. The model must be on `device` already. If `group` is given, a
  /// batch is this process's share of one, and a step is a collective operation with the same
  /// result in all processes.
  TrainingStep(const Recipe& recipe, CapsNet& model, torch::Device device,
               ProcessGroup* group = nullptr);

  /// Runs the step `position` of the epoch in `context`. On a CPU it returns false if the loss is
  /// not finite, and the weights do not change then. On a GPU nothing waits for the loss: see
  /// EpochSums::bad_step. If PeerLost is thrown, the network is as it was before the step.
  bool run(const Batch& batch, int64_t position, PruningContext& context, EpochSums& sums);

  /// The same as work that can be recorded: it does not wait for the device, and does not depend on
  /// host values that change within an epoch. `position` (int64 [1]) and Adam's `numbers` [3] are
  /// on the device. The caller counts Adam's steps and the images of the sums.
  void run_on_device(const Batch& batch, const torch::Tensor& position,
                     const torch::Tensor& numbers, const UpdateRule& rule, int64_t epoch,
                     EpochSums& sums);

  /// Only forward and backward, in float32, for strategies that use gradients and for messages.
  void make_gradients(const Batch& batch, int64_t epoch);

  Adam& adam() { return adam_; }
  Pruner& pruner() { return *pruner_; }
  /// Times the phases of the following steps. Null: stop timing.
  void set_clock(PhaseClock* clock) { clock_ = clock; }

 private:
  Forward forward(const Batch& batch);
  /// In the recipe's precision.
  Forward training_forward(const Batch& batch);
  /// Forward and backward of a share. The gradients are those of the whole batch afterwards.
  /// Returns its mean loss and how many answers are right, float32 [2].
  Tensor share_gradients(const Batch& batch, int64_t epoch, bool mixed_precision);
  bool run_share(const Batch& batch, int64_t position, PruningContext& context, EpochSums& sums);
  Tensor loss_of(const Batch& batch, const Forward& forward, int64_t epoch) const;
  void update(PruningContext& context);

  const Recipe& recipe_;
  CapsNet& model_;
  torch::Device device_;
  ProcessGroup* group_;
  Adam adam_;
  std::unique_ptr<Pruner> pruner_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace remcaps
