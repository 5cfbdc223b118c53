// What is measured and decided at the end of an epoch and of the run.
#include <cmath>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/capsule_pruning.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/nonfinite.h"
#include "remcaps/training/trainer.h"

namespace remcaps {
namespace {

// Ends a pass over the validation set after a signal.
struct StopRequested {};

void stop_pass_if_interrupted() {
  if (InterruptGuard::signal() != 0) throw StopRequested();
}

}  // namespace

void Trainer::end_epoch() {
  EpochRecord record;
  record.epoch = progress_.epoch;
  record.step = progress_.step;
  record.lr = recipe_.train.lr_at(progress_.epoch);
  const auto images = static_cast<double>(sums_.images);
  record.train_loss = sums_.loss.item<double>() / images;
  record.train_accuracy = sums_.correct.item<double>() / images;
  share_weights();
  try {
    validate(record);
    prune(record);
  } catch (const StopRequested&) {
    if (group_ == nullptr) look_for_stop();
    stop_if_interrupted();  // saves the run as it is after its last step
  }
  savable_ = false;
  check_same_masks();
  measure_test(record);

  const bool improved = record.validation_loss < progress_.best_loss;
  if (improved) {
    progress_.best_loss = record.validation_loss;
    progress_.best_epoch = progress_.epoch;
    if (writes()) save_weights(folder_.best(), *model_, weights_info(progress_.epoch));
  }
  const auto& keep = recipe_.metrics.keep_epochs;
  if (writes() && std::find(keep.begin(), keep.end(), progress_.epoch) != keep.end())
    save_weights(folder_.epoch(progress_.epoch), *model_, weights_info(progress_.epoch));
  if (metrics_) metrics_->append(record);
  display_.end_epoch(record, improved);
  warn_if_saturated(record);

  ++progress_.epoch;
  progress_.position = 0;
  sums_ = EpochSums::zeros(device_);
  savable_ = true;
  // `best` and the state must agree, so they are saved together.
  if (improved || epoch_checkpoint_is_due()) save_epoch();
  if (!on_epoch_) return;
  try {
    on_epoch_();
  } catch (...) {
    save_epoch();
    throw;
  }
}

void Trainer::validate(EpochRecord& record) {
  EvaluateOptions options = evaluation(progress_.epoch);
  options.reconstruction = recipe_.loss.reconstruction;
  display_.begin_pass("validation", validation_->size());
  options.on_progress = [this](int64_t done) {
    display_.update_pass(done);
    if (group_ == nullptr) stop_pass_if_interrupted();
  };
  const Evaluation result = evaluate(*model_, *validation_, options);
  if (!std::isfinite(result.batch_mean_loss)) {
    const Batch batch = validation_->evaluation_batch(0, options.batch);
    fail(
        "validation loss is not finite after epoch {}; first not finite: {}; last good checkpoint: "
        "{} "
        "({})",
        progress_.epoch + 1, find_nonfinite(*model_, batch, [] {}), folder_.state().string(),
        last_saved_);
  }
  record.validation_loss = result.batch_mean_loss;
  record.validation_accuracy = progress_.validation_accuracy = result.accuracy;
}

void Trainer::prune(EpochRecord& record) {
  PruningContext context = pruning_context();
  context.epoch_validation_loss = record.validation_loss;
  context.epoch_validation_accuracy = record.validation_accuracy;
  context.chance_accuracy = chance_accuracy_;
  search_passes_ = 0;
  const PruningReport report = step_->pruner().after_epoch(context);
  if (report.evaluations > 0 || report.pruned) {
    record.threshold = report.threshold;
    record.evaluations = report.evaluations;
  }
  if (report.evaluations > 0) {
    record.loss_before_pruning = report.loss_before;
    record.loss_after_pruning = report.loss_after;
  }
  const Sparsity sparsity = measure_sparsity(*model_);
  record.sparsity = sparsity.published();
  record.parameters_nonzero = sparsity.nonzero;
  if (report.pruned && report.evaluations > 0) warn_if_pruned_at_chance(record);
}

void Trainer::stop_search_if_asked() {
  if (group_ == nullptr) return stop_pass_if_interrupted();
  look_for_stop();
  if (stop_signal_ != 0) throw StopRequested();
}

double Trainer::search_trees(bool parts) {
  stop_search_if_asked();
  EvaluateOptions options = evaluation(progress_.epoch);
  options.forward.contributions = parts;
  const ParseTreeReport report = measure_parse_trees(*model_, *validation_, quantizers(), options);
  return parts ? report.parts->half : report.last().entropy;
}

GivenVotes Trainer::search_votes() {
  stop_search_if_asked();
  return given_votes(*model_, *validation_, evaluation(progress_.epoch));
}

double Trainer::search_loss() {
  EvaluateOptions options = evaluation(progress_.epoch);
  stop_search_if_asked();
  if (!device_.is_cuda()) {
    display_.begin_pass(fmt::format("search, pass {}", ++search_passes_), validation_->size());
    options.on_progress = [this](int64_t done) {
      display_.update_pass(done);
      if (group_ == nullptr) stop_pass_if_interrupted();
    };
    return evaluate_margin_loss(*model_, *validation_, options);
  }
  if (!search_pass_ || !(search_margin_ == options.margin)) {
    options.batch = search_batch(*model_, device_);
    search_pass_ =
        std::make_unique<EvaluationPass>(*model_, *validation_, options, recipe_.cuda_graph);
    search_margin_ = options.margin;
  }
  return search_pass_->loss();
}

void Trainer::measure_test(EpochRecord& record) {
  const int64_t every = recipe_.metrics.every;
  if (every == 0 || (progress_.epoch + 1) % every != 0 || test_ == nullptr) return;
  EvaluateOptions options = evaluation(progress_.epoch);
  display_.begin_pass("test", test_->size());
  options.on_progress = [this](int64_t done) { display_.update_pass(done); };
  const SplitMeasurement result =
      measure_split(*model_, *test_, quantizers(), options, /*scores=*/false);
  record.test_loss = result.plain.loss;
  record.test_accuracy = result.plain.accuracy;
  if (result.trees) {
    record.accuracy_quantized = result.trees->accuracy_quantized;
    record.entropy = result.trees->last().entropy;
    record.keys = result.trees->last().median_keys;
  }
}

bool Trainer::is_above_chance(const EpochRecord& record) const {
  constexpr double kLearnt = 0.1;  // share of the way from chance to 1
  return record.validation_accuracy >= chance_accuracy_ + kLearnt * (1 - chance_accuracy_);
}

void Trainer::warn_if_saturated(const EpochRecord& record) const {
  const bool saturated = finds_all_classes(record.validation_loss, model_->classes(),
                                           recipe_.loss.margin(record.epoch));
  if (record.epoch == 0 && saturated && !is_above_chance(record))
    say("warning: after the first epoch every class is found in every image (validation loss "
        "{:.2f}); train.lr {} is probably too high",
        record.validation_loss, recipe_.train.lr);
}

void Trainer::warn_if_pruned_at_chance(const EpochRecord& record) {
  if (is_above_chance(record) || warned_at_chance_) return;
  warned_at_chance_ = true;
  display_.clear();
  say("warning: sparsity is {:.2f} % after epoch {} and validation accuracy {:.2f} %, where "
      "chance is {:.2f} %: pruning costs a network nothing that has not learnt yet; to let "
      "it learn first, set pruning.above_chance (to 0.25, for example), "
      "pruning.min_accuracy or pruning.begin",
      record.sparsity * 100, record.epoch + 1, record.validation_accuracy * 100,
      chance_accuracy_ * 100);
}

RunSummary Trainer::finish(const std::string& reason) {
  save_epoch();
  savable_ = false;
  RunSummary summary;
  summary.folder = folder_.path().string();
  summary.recipe = recipe_.name;
  summary.model = recipe_.model;
  summary.dataset = recipe_.dataset.name;
  summary.device = device_.str();
  summary.machine = device_name(device_);
  summary.data_note = data_note_;
  summary.options = yaml_paths(recipe_.to_yaml());
  summary.seed = recipe_.train.seed;
  summary.stopped = reason;
  const bool last = recipe_.counts_last();
  summary.checkpoint = last ? "last" : "best";
  summary.checkpoint_epoch = last ? progress_.epoch - 1 : progress_.best_epoch;
  summary.epochs = progress_.epoch;
  summary.steps = progress_.step;
  summary.best_validation_loss = progress_.best_loss;
  summary.seconds = seconds();
  if (!last) {
    if (writes())
      load_weights(*model_, TensorFile(folder_.best()).load_all(), folder_.best().string());
    share_weights();
  }
  const EvaluateOptions options = evaluation(summary.checkpoint_epoch);
  if (test_ != nullptr)
    summary.test = measure_split(*model_, *test_, quantizers(), options, /*scores=*/true);
  for (const auto& [name, dataset] : extra_) {
    const BatchSource source(dataset, recipe_.dataset.augment, device_);
    summary.extra[name] = measure_split(*model_, source, quantizers(), options, /*scores=*/true);
  }
  const Sparsity sparsity = measure_sparsity(*model_);
  summary.parameters = sparsity.parameters;
  summary.parameters_nonzero = sparsity.nonzero;
  summary.sparsity = sparsity.published();
  const DeadStructures dead = count_dead_structures(*model_);
  summary.capsules = dead.capsules;
  summary.capsules_left = dead.capsules - dead.dead_capsules;
  if (writes()) write_atomically(folder_.summary(), json_text(to_json(summary), 2) + "\n");
  if (group_ != nullptr) group_->barrier();  // the others end when the files are complete
  return summary;
}

}  // namespace remcaps
