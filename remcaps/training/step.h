// One step of training: forward, loss, backward, pruning, update.
#pragma once

#include <memory>

#include "remcaps/data/batches.h"
#include "remcaps/evaluation/phase_clock.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/training/adam.h"
#include "remcaps/training/epoch_sums.h"

namespace remcaps {

/// The optimiser and the pruning strategy of a recipe around its network: what the trainer's loop
/// and `remcaps bench` both run.
class TrainingStep {
 public:
  /// `recipe` and `model` must outlive it; the model is on `device` already.
  TrainingStep(const Recipe& recipe, CapsNet& model, torch::Device device);

  /// Step `position` of the epoch in `context`. False, with the weights as they were, where the
  /// loss is known not to be finite: on a CPU. On a GPU nothing waits for it; see `sums`.
  bool run(const Batch& batch, int64_t position, PruningContext& context, EpochSums& sums);

  /// The same as work for a graph that is recorded: nothing in it waits for the device, and of the
  /// host's values it depends on none that changes within an epoch. `position` (int64 [1]) and
  /// Adam's `numbers` [3] lie on the device. Neither Adam's steps nor the sums' images are counted.
  void run_on_device(const Batch& batch, const torch::Tensor& position,
                     const torch::Tensor& numbers, const UpdateRule& rule, int64_t epoch,
                     EpochSums& sums);

  /// Forward and backward only, in float32: for strategies that look at gradients, and for
  /// messages.
  void make_gradients(const Batch& batch, int64_t epoch);

  Adam& adam() { return adam_; }
  Pruner& pruner() { return *pruner_; }
  /// Has its phases timed from now on; null: no longer.
  void set_clock(PhaseClock* clock) { clock_ = clock; }

 private:
  Forward forward(const Batch& batch);
  /// In the recipe's precision.
  Forward training_forward(const Batch& batch);
  Tensor loss_of(const Batch& batch, const Forward& forward, int64_t epoch) const;
  void update(PruningContext& context);

  const Recipe& recipe_;
  CapsNet& model_;
  torch::Device device_;
  Adam adam_;
  std::unique_ptr<Pruner> pruner_;
  PhaseClock* clock_ = nullptr;
};

}  // namespace remcaps
