#include "remcaps/training/step_graph.h"

#include <string>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

// Steps that run before one is recorded: cuDNN chooses its algorithms, the allocator grows, kernels
// are loaded.
constexpr int64_t kEagerSteps = 3;

}  // namespace

StepGraph::StepGraph(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
                     torch::Device device)
    : recipe_(recipe),
      step_(step),
      source_(source),
      graph_(device),
      batch_(recipe.train.batch),
      steps_(source.batches(recipe.train.batch)) {
  const auto options = torch::TensorOptions().device(device);
  position_ = torch::zeros({1}, options.dtype(torch::kInt64));
  numbers_ = torch::zeros({steps_, 3}, options.dtype(torch::kFloat32));
}

bool StepGraph::serves(const Recipe& recipe, TrainingStep& step, const BatchSource& source,
                       torch::Device device) {
  return recipe.cuda_graph && has_device_graphs(device) && step.adam().one_pass() &&
         source.stays_on_device() && source.size() >= recipe.train.batch;
}

bool StepGraph::run(int64_t position, PruningContext& context, EpochSums& sums) {
  const bool full = (position + 1) * batch_ <= source_.size();
  if (!usable_ || !full || !prepare(position, context, sums)) return false;
  if (warm_ups_ < kEagerSteps) {
    ++warm_ups_;
    work();
  } else {
    if (stale_ && !record()) return false;
    graph_.replay();
  }
  ++counter_;
  step_.adam().count_step();
  sums.images += batch_;
  return true;
}

bool StepGraph::prepare(int64_t position, PruningContext& context, const EpochSums& sums) {
  const bool same_epoch = context.epoch == epoch_ && sums.loss.is_same(sums_.loss);
  if (!same_epoch) {
    rule_ = step_.pruner().update_rule(context);
    usable_ = rule_.has_value();
    if (!usable_) return false;
    epoch_ = context.epoch;
    sums_ = sums;
    source_.prepare_epoch(static_cast<uint64_t>(recipe_.train.seed), static_cast<uint64_t>(epoch_));
    stale_ = true;
  }
  const int64_t before = step_.adam().steps() - position;
  if (!same_epoch || before != before_) {
    numbers_.copy_(
        step_.adam().numbers(recipe_.train.lr_at(epoch_), rule_->lambda, before + 1, steps_),
        /*non_blocking=*/true);
    before_ = before;
  }
  // After a resume, and after steps without the graph.
  if (counter_ != position) {
    position_.fill_(position);
    counter_ = position;
  }
  return true;
}

bool StepGraph::record() {
  usable_ = graph_.try_record("the training step", [this] { work(); });
  stale_ = !usable_;
  // Nothing has run: the caller must do the step.
  if (!usable_) step_.adam().zero_grad();
  return usable_;
}

void StepGraph::work() {
  const Batch batch = source_.training_batch_at(position_, batch_);
  const torch::Tensor numbers = numbers_.index_select(0, position_).view({3});
  step_.run_on_device(batch, position_, numbers, *rule_, epoch_, sums_);
  position_.add_(1);
}

}  // namespace remcaps
