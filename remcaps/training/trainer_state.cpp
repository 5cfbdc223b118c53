// Saving a run, and going on with a saved one.
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/message.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/trainer.h"

namespace remcaps {
namespace {

// For messages. People count epochs from 1, as the progress bar does.
std::string place_text(const RunProgress& progress) {
  if (progress.position > 0)
    return fmt::format("epoch {}, step {}", progress.epoch + 1, progress.position);
  return progress.epoch > 0 ? fmt::format("the end of epoch {}", progress.epoch) : "the start";
}

}  // namespace

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

void Trainer::save_epoch() {
  if (saved_epochs_ == progress_.epoch) return;
  if (writes()) save_weights(folder_.last(), *model_, weights_info(progress_.epoch - 1));
  save_state_now();
  saved_epochs_ = progress_.epoch;
  epoch_saved_at_ = saved_at_;
}

WeightsInfo Trainer::weights_info(int64_t epoch) const {
  return {recipe_, context_, class_names_, epoch};
}

}  // namespace remcaps
