#include "remcaps/training/trainer.h"

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/evaluation/memory.h"
#include "remcaps/pruning/capsules.h"
#include "remcaps/pruning/scope.h"
#include "remcaps/recipe/context.h"
#include "remcaps/runs/load.h"
#include "remcaps/runs/status.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/nonfinite.h"

namespace remcaps {
namespace {

// Accuracy of always naming the most frequent class.
double chance_accuracy(const Dataset& data) {
  const Tensor images = torch::bincount(data.labels);  // [classes]
  return images.max().item<double>() / static_cast<double>(data.size());
}

}  // namespace

void apply_runtime_options(const Recipe& recipe) {
  set_deterministic(recipe.deterministic);
  set_tf32(recipe.precision != "float32");
}

Trainer::Trainer(Recipe recipe, const DataSplits& data, RunFolder folder, torch::Device device,
                 ProcessGroup* group)
    : recipe_(std::move(recipe)),
      folder_(std::move(folder)),
      device_(device),
      group_(group),
      class_names_(data.class_names),
      extra_(data.extra),
      data_note_(data.test.note),
      context_(model_context(recipe_, data)),
      display_(recipe_.train.epochs) {
  check(data.validation.size() > 0,
        "{}: the validation split has no images; dataset.validation is {}", recipe_.dataset.name,
        recipe_.dataset.validation);
  chance_accuracy_ = chance_accuracy(data.validation);
  apply_runtime_options(recipe_);
  // If the run is resumed, its state has the pretrained backbone too.
  context_.load_pretrained = !std::filesystem::exists(folder_.state());
  model_ = build_model(recipe_, context_);
  if (recipe_.loss.kind == "cross-entropy" && !model_->gives_probabilities())
    throw UsageError(fmt::format(
        "{}: loss.kind is cross-entropy, which needs probabilities; {} gives lengths of capsules",
        recipe_.name, model_->name()));
  if (context_.load_pretrained && !recipe_.train.start_from.empty())
    start_from(*model_, recipe_.train.start_from);
  quantizers();  // reports levels that do not fit the network before training starts
  freeze();
  const std::string warning = check_memory(*model_, recipe_, device_);
  if (!warning.empty()) say("warning: {}", warning);
  model_->to(device_);
  step_ = std::make_unique<TrainingStep>(recipe_, *model_, device_, group_);
  const AugmentOptions& augment = recipe_.dataset.augment;
  train_ = std::make_unique<BatchSource>(data.train, augment, device_);
  if (group_ != nullptr) {
    check_can_be_divided();
    train_->take_share(group_->rank(), group_->size(), recipe_.train.batch);
  }
  validation_ = std::make_unique<BatchSource>(data.validation, augment, device_);
  if (data.test.size() > 0) test_ = std::make_unique<BatchSource>(data.test, augment, device_);
  if (StepGraph::serves(recipe_, *step_, *train_, device_))
    graph_ = std::make_unique<StepGraph>(recipe_, *step_, *train_, device_);
  sums_ = EpochSums::zeros(device_);
}

void Trainer::freeze() {
  for (const std::string& pattern : recipe_.train.freeze) {
    bool found = false;
    for (auto& item : model_->named_parameters()) {
      if (!selects(pattern, item.key())) continue;
      item.value().set_requires_grad(false);
      found = true;
    }
    if (!found)
      throw UsageError(fmt::format("{}: train.freeze: no parameter of {} matches {}", recipe_.name,
                                   model_->name(), pattern));
  }
}

void Trainer::train_mode() {
  model_->train();
  if (recipe_.train.freeze.empty()) return;
  // A frozen batch norm must not update its averages, and frozen weights can be packed.
  for (const auto& module : model_->modules(/*include_self=*/false)) {
    const auto own = module->parameters(/*recurse=*/false);
    const bool frozen =
        !own.empty() && std::none_of(own.begin(), own.end(),
                                     [](const Tensor& each) { return each.requires_grad(); });
    if (!frozen) continue;
    module->eval();
    pack_weights(*module);
  }
}

RunSummary Trainer::run(std::optional<double> minutes) {
  std::optional<RunLock> lock;
  if (writes()) lock_ = &lock.emplace(folder_);
  const InterruptGuard guard;
  std::optional<OwnStream> stream;  // the whole run uses one stream
  if (recipe_.cuda_graph) stream.emplace(device_);
  try {
    return train_to_the_end(minutes);
  } catch (const PeerLost& lost) {
    save_after_loss(lost);
  }
}

RunSummary Trainer::train_to_the_end(std::optional<double> minutes) {
  start();
  limit_seconds_ = 60 * minutes.value_or(recipe_.train.minutes);
  if (minutes && limit_seconds_ > 0) limit_seconds_ += seconds_before_;
  look_for_stop();
  std::string reason = reason_to_stop();
  // A finished run that goes on is unfinished until it has a new summary.
  if (reason.empty() && writes()) std::filesystem::remove(folder_.summary());
  while (reason.empty()) {
    train_epoch();
    look_for_stop();
    reason = reason_to_stop();
    if (reason.empty()) stop_if_interrupted();
  }
  return finish(reason);
}

std::string Trainer::reason_to_stop() const {
  // A run that was stopped within an epoch finishes that epoch first.
  if (progress_.epoch == 0 || progress_.position > 0) return "";
  if (recipe_.train.epochs > 0 && progress_.epoch >= recipe_.train.epochs) return "epochs";
  if (recipe_.train.stop_accuracy > 0 &&
      progress_.validation_accuracy >= recipe_.train.stop_accuracy)
    return "accuracy";
  if (recipe_.train.patience > 0 &&
      progress_.epoch - 1 - progress_.best_epoch >= recipe_.train.patience)
    return "patience";
  return out_of_time_ ? "minutes" : "";
}

void Trainer::train_epoch() {
  const int64_t steps = train_->batches(recipe_.train.batch);
  train_mode();
  if (progress_.position == 0) {
    sums_ = EpochSums::zeros(device_);
    PruningContext context = pruning_context();
    step_->pruner().before_epoch(context);
  }
  display_.begin_epoch(progress_.epoch, sums_.images, train_->size());
  while (progress_.position < steps) {
    train_step();
    display_.update(sums_.images);
    if (Clock::now() - looked_ > std::chrono::seconds(1)) look_at_sums();
    // The end of the epoch saves everything.
    if (progress_.position == steps) break;
    look_for_stop();
    stop_if_interrupted();
    if (out_of_time_) break;
    if (checkpoint_is_due()) save_state_now();
  }
  look_at_sums();
  end_epoch();
}

void Trainer::train_step() {
  PruningContext context = pruning_context();
  const bool replayed = graph_ && graph_->run(progress_.position, context, sums_);
  // On a CPU the loss is known: stop before the weights change.
  if (!replayed && !step_->run(batch_of(progress_.position), progress_.position, context, sums_))
    stop_not_finite(progress_.position);
  ++progress_.position;
  ++progress_.step;
}

Batch Trainer::batch_of(int64_t position) const {
  return train_->training_batch(position, recipe_.train.batch,
                                static_cast<uint64_t>(recipe_.train.seed),
                                static_cast<uint64_t>(progress_.epoch));
}

void Trainer::look_at_sums() {
  const Tensor read = torch::stack({sums_.loss, sums_.correct.to(torch::kFloat64)}).cpu();
  looked_ = Clock::now();
  const auto images = static_cast<double>(sums_.images);
  display_.update(sums_.images);  // the device has done these images now
  if (!std::isfinite(read[0].item<double>())) stop_not_finite(sums_.bad_step.item<int64_t>());
  display_.set_note(read[0].item<double>() / images, read[1].item<double>() / images);
  note_progress(read[0].item<double>() / images, read[1].item<double>() / images);
}

void Trainer::note_progress(double loss, double accuracy) {
  if (lock_ == nullptr) return;
  TrainingNote note;
  note.epoch = progress_.epoch;
  note.images_done = sums_.images;
  note.images = train_->size();
  note.loss = loss;
  note.accuracy = accuracy;
  note.seconds = seconds();
  note.limit_seconds = limit_seconds_;
  lock_->set_note(to_text(note));
}

void Trainer::stop_not_finite(int64_t position) {
  display_.clear();
  const Batch batch = batch_of(position);
  const std::string where = find_nonfinite(*model_, batch, [&] {
    // The gradients of several processes are those of this step still.
    if (group_ == nullptr) step_->make_gradients(batch, progress_.epoch);
  });
  fail(
      "loss is not finite at epoch {}, step {}; first not finite: {}; last good checkpoint: {} "
      "({})",
      progress_.epoch + 1, position + 1, where, folder_.state().string(), last_saved_);
}

PruningContext Trainer::pruning_context() {
  const auto validation_loss = [this] { return search_loss(); };
  const auto gradients_of_one_batch = [this] {
    train_mode();
    step_->make_gradients(batch_of(0), progress_.epoch);
  };
  return PruningContext{.model = *model_,
                        .epoch = progress_.epoch,
                        .seed = static_cast<uint64_t>(recipe_.train.seed),
                        .validation_loss = validation_loss,
                        .validation_entropy = [this] { return search_trees(/*parts=*/false); },
                        .validation_parts = [this] { return search_trees(/*parts=*/true); },
                        .given_votes = [this] { return search_votes(); },
                        .gradients_of_one_batch = gradients_of_one_batch};
}

EvaluateOptions Trainer::evaluation(int64_t epoch) const {
  EvaluateOptions options = evaluation_options(recipe_, epoch, device_);
  options.group = group_;
  return options;
}

Quantizers Trainer::quantizers() const {
  return recipe_.quantize.quantizers(model_->routing_layers().size());
}

double Trainer::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace remcaps
