#include "remcaps/training/trainer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/base/message.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/evaluation/memory.h"
#include "remcaps/evaluation/split_trees.h"
#include "remcaps/models/stacked_capsnet.h"
#include "remcaps/pruning/scope.h"
#include "remcaps/pruning/sparsity.h"
#include "remcaps/recipe/context.h"
#include "remcaps/runs/load.h"
#include "remcaps/runs/status.h"
#include "remcaps/torch/compat.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/nonfinite.h"

namespace remcaps {
namespace {

// For messages. People count epochs from 1, as the progress bar does.
std::string place_text(const RunProgress& progress) {
  if (progress.position > 0)
    return fmt::format("epoch {}, step {}", progress.epoch + 1, progress.position);
  return progress.epoch > 0 ? fmt::format("the end of epoch {}", progress.epoch) : "the start";
}

// Accuracy of always naming the most frequent class.
double chance_accuracy(const Dataset& data) {
  const Tensor images = torch::bincount(data.labels);  // [classes]
  return images.max().item<double>() / static_cast<double>(data.size());
}

// Ends a pass over the validation set after a signal.
struct StopRequested {};

void stop_pass_if_interrupted() {
  if (InterruptGuard::signal() != 0) throw StopRequested();
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
  // A frozen batch norm must not update its averages.
  for (const auto& module : model_->modules(/*include_self=*/false)) {
    const auto own = module->parameters(/*recurse=*/false);
    const bool frozen =
        !own.empty() && std::none_of(own.begin(), own.end(),
                                     [](const Tensor& each) { return each.requires_grad(); });
    if (frozen) module->eval();
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
  while (reason.empty()) {
    train_epoch();
    look_for_stop();
    reason = reason_to_stop();
    if (reason.empty()) stop_if_interrupted();
  }
  return finish(reason);
}

void Trainer::check_can_be_divided() const {
  const auto* stacked = dynamic_cast<const StackedCapsNet*>(model_.get());
  check(stacked == nullptr || stacked->images_are_independent(),
        "{}: the routing of {} takes a mean over the batch, which cannot be divided over {} "
        "processes; --distributed off trains in each process alone",
        recipe_.name, model_->name(), group_->size());
  check(recipe_.train.batch >= group_->size(), "{}: train.batch is {}; expected at least {}, {}",
        recipe_.name, recipe_.train.batch, group_->size(), "the number of processes");
}

void Trainer::check_same_run() {
  if (group_ == nullptr) return;
  const std::string own = fmt::format("{}\n{} {} {}", recipe_.to_text(), train_->size(),
                                      validation_->size(), test_ ? test_->size() : 0);
  check(own == group_->broadcast_text(own),
        "rank {} has another recipe or other data than rank 0; expected the same", group_->rank());
}

void Trainer::share_weights() {
  if (group_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  for (const auto& list : {model_->parameters(), model_->buffers()})
    for (const Tensor& tensor : list) group_->broadcast(tensor);
}

void Trainer::check_same_masks() {
  if (group_ == nullptr) return;
  // FNV-1a over the bytes of all masks.
  uint64_t hash = 14695981039346656037U;
  for (const auto& [name, tensor] : step_->pruner().state()) {
    if (tensor.scalar_type() != torch::kUInt8) continue;
    const Tensor mask = tensor.cpu().contiguous();
    const uint8_t* bytes = mask.data_ptr<uint8_t>();
    for (int64_t k = 0; k < mask.numel(); ++k) hash = (hash ^ bytes[k]) * 1099511628211U;
  }
  const std::vector<std::string> all = group_->gather(std::to_string(hash));
  for (size_t rank = 1; rank < all.size(); ++rank)
    check(
        all[rank] == all[0],
        "after epoch {}, rank {} has pruned other weights than rank 0; the run cannot go on; last "
        "good checkpoint: {} ({})",
        progress_.epoch + 1, rank, folder_.state().string(), last_saved_);
}

void Trainer::look_for_stop() {
  // On a GPU the steps are only queued here, and looking would wait for them.
  constexpr int64_t kStepsBetweenLooks = 32;
  if (group_ != nullptr && device_.is_cuda() && progress_.position % kStepsBetweenLooks != 0)
    return;
  stop_signal_ = InterruptGuard::signal();
  out_of_time_ = limit_seconds_ > 0 && seconds() >= limit_seconds_;
  if (group_ == nullptr) return;
  // How many processes got each signal, and whether rank 0 is out of time.
  const Tensor votes =
      torch::tensor({stop_signal_ == SIGINT ? 1 : 0, stop_signal_ == SIGTERM ? 1 : 0,
                     out_of_time_ && writes() ? 1 : 0},
                    torch::kInt64);
  group_->all_reduce_sum(votes);
  const int64_t* vote = votes.data_ptr<int64_t>();
  stop_signal_ = vote[0] > 0 ? SIGINT : vote[1] > 0 ? SIGTERM : 0;
  out_of_time_ = vote[2] > 0;
}

void Trainer::save_after_loss(const PeerLost& lost) {
  display_.clear();
  std::optional<RunLock> lock;
  if (lost.writer()) {
    // Every process that is left has the state. The first writes it; the others find its lock, or
    // write the same once more.
    try {
      lock_ = &lock.emplace(folder_);
    } catch (const Error&) {
    }
  }
  if (lock_ == nullptr) fail("{}", lost.what());
  if (savable_) {
    write_state();
    last_saved_ = place_text(progress_);
  }
  fail("{}; saved at {}; go on with: remcaps resume {}", lost.what(), last_saved_,
       folder_.path().string());
}

void Trainer::start() {
  begin_ = looked_ = saved_at_ = epoch_saved_at_ = Clock::now();
  if (recipe_.precision == "bf16" && !device_.is_cuda())
    say("note: precision bf16 is for a GPU; on a CPU the run is float32");
  check_same_run();
  if (writes()) {
    folder_.remove_leftovers();
    write_atomically(folder_.recipe(), recipe_.to_text());
    metrics_ = std::make_unique<MetricsFile>(folder_.metrics());
  }
  bool resumes = std::filesystem::exists(folder_.state());
  if (group_ != nullptr) resumes = group_->broadcast_text(resumes ? "yes" : "no") == "yes";
  if (resumes) {
    progress_ = load_state(folder_.state(), *model_, step_->adam(), step_->pruner(), sums_);
    const int64_t steps = train_->batches(recipe_.train.batch);
    check(progress_.position <= steps && sums_.images <= train_->size(),
          "{}: its progress is step {} and image {} of an epoch; expected at most {} and {}",
          folder_.state().string(), progress_.position, sums_.images, steps, train_->size());
    seconds_before_ = progress_.seconds;
    if (progress_.position == 0) saved_epochs_ = progress_.epoch;
    if (metrics_) metrics_->cut(progress_.epoch);
    last_saved_ = place_text(progress_);
    savable_ = true;
    share_weights();
    return;
  }
  if (metrics_) metrics_->cut(0);
  share_weights();
  PruningContext context = pruning_context();
  step_->pruner().at_initialisation(context);
  step_->adam().zero_grad();
  savable_ = true;
  save_state_now();
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

void Trainer::stop_if_interrupted() {
  if (stop_signal_ == 0) return;
  display_.clear();
  if (progress_.position == 0)
    save_epoch();
  else
    save_state_now();
  throw Interrupted(fmt::format("interrupted; saved at {}; go on with: remcaps resume {}",
                                last_saved_, folder_.path().string()),
                    stop_signal_);
}

bool Trainer::checkpoint_is_due() const {
  const TrainOptions& train = recipe_.train;
  if (train.checkpoint_steps > 0 && progress_.position % train.checkpoint_steps == 0) return true;
  return train.checkpoint_minutes > 0 &&
         Clock::now() - saved_at_ > std::chrono::duration<double>(60 * train.checkpoint_minutes);
}

bool Trainer::epoch_checkpoint_is_due() const {
  const TrainOptions& train = recipe_.train;
  return progress_.epoch - saved_epochs_ >= train.checkpoint_epochs &&
         Clock::now() - epoch_saved_at_ >= std::chrono::duration<double>(train.checkpoint_seconds);
}

void Trainer::save_state_now() {
  if (sums_.images > 0) look_at_sums();  // a loss that is not finite must not be saved
  if (writes()) write_state();
  saved_at_ = Clock::now();
  last_saved_ = place_text(progress_);
}

void Trainer::write_state() {
  progress_.seconds = seconds();
  save_state(folder_.state(), *model_, step_->adam(), step_->pruner(), progress_, sums_);
}

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

void Trainer::save_epoch() {
  if (saved_epochs_ == progress_.epoch) return;
  if (writes()) save_weights(folder_.last(), *model_, weights_info(progress_.epoch - 1));
  save_state_now();
  saved_epochs_ = progress_.epoch;
  epoch_saved_at_ = saved_at_;
}

void Trainer::warn_if_saturated(const EpochRecord& record) const {
  const bool saturated = finds_all_classes(record.validation_loss, model_->classes(),
                                           recipe_.loss.margin(record.epoch));
  if (record.epoch == 0 && saturated)
    say("warning: after the first epoch every class is found in every image (validation loss "
        "{:.2f}); train.lr {} is probably too high",
        record.validation_loss, recipe_.train.lr);
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

void Trainer::warn_if_pruned_at_chance(const EpochRecord& record) {
  constexpr double kLearnt = 0.1;  // share of the way from chance to 1
  const bool learnt =
      record.validation_accuracy >= chance_accuracy_ + kLearnt * (1 - chance_accuracy_);
  if (learnt || warned_at_chance_) return;
  warned_at_chance_ = true;
  display_.clear();
  say("warning: sparsity is {:.2f} % after epoch {} and validation accuracy {:.2f} %, where "
      "chance is {:.2f} %: pruning costs a network nothing that has not learnt yet; to let "
      "it learn first, set pruning.above_chance (to 0.25, for example), "
      "pruning.min_accuracy or pruning.begin",
      record.sparsity * 100, record.epoch + 1, record.validation_accuracy * 100,
      chance_accuracy_ * 100);
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
  if (writes()) write_atomically(folder_.summary(), json_text(to_json(summary), 2) + "\n");
  if (group_ != nullptr) group_->barrier();  // the others end when the files are complete
  return summary;
}

Quantizers Trainer::quantizers() const {
  return recipe_.quantize.quantizers(model_->routing_layers().size());
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
                        .gradients_of_one_batch = gradients_of_one_batch};
}

double Trainer::search_loss() {
  EvaluateOptions options = evaluation(progress_.epoch);
  if (group_ != nullptr) {
    look_for_stop();
    if (stop_signal_ != 0) throw StopRequested();
  } else {
    stop_pass_if_interrupted();
  }
  if (!device_.is_cuda()) {
    display_.begin_pass("search", validation_->size());
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

EvaluateOptions Trainer::evaluation(int64_t epoch) const {
  EvaluateOptions options = evaluation_options(recipe_, epoch, device_);
  options.group = group_;
  return options;
}

WeightsInfo Trainer::weights_info(int64_t epoch) const {
  return {recipe_, context_, class_names_, epoch};
}

double Trainer::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - begin_).count();
}

}  // namespace remcaps
