#include "remcaps/training/display.h"

#include <fmt/format.h>

#include <cstdio>

#include "remcaps/base/files.h"
#include "remcaps/base/message.h"

namespace remcaps {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// Messages count epochs from 1 ("epoch 1/50"). Files count from 0, as the published code does.
std::string TrainingDisplay::label() const {
  return epochs_ > 0 ? fmt::format("epoch {}/{}", epoch_ + 1, epochs_)
                     : fmt::format("epoch {}", epoch_ + 1);
}

void TrainingDisplay::begin_epoch(int64_t epoch, int64_t images_done, int64_t images) {
  epoch_ = epoch;
  first_ = images_done;
  images_ = 0;
  begin_ = Clock::now();
  note_.clear();
  bar_.emplace(label(), images);
  bar_->update(images_done);
}

void TrainingDisplay::update(int64_t images_done) {
  images_ = images_done - first_;
  train_seconds_ = seconds_since(begin_);
  if (bar_) bar_->update(images_done, note_);
}

void TrainingDisplay::set_note(double loss, double accuracy) {
  if (!bar_) return;
  note_ =
      fmt::format("loss {:.4f}  acc {:.2f} %  {:.0f} img/s", loss, accuracy * 100, bar_->rate());
}

void TrainingDisplay::begin_pass(const std::string& what, int64_t images) {
  bar_.emplace(fmt::format("{} {}", label(), what), images);
  note_.clear();
}

void TrainingDisplay::update_pass(int64_t images_done) {
  bar_->update(images_done);
}

void TrainingDisplay::end_epoch(const EpochRecord& record, bool improved) {
  bar_.reset();
  const double seconds = seconds_since(begin_);
  std::string line = fmt::format("{}  loss {:.4f}  acc {:.2f} %  val loss {:.5f}  val acc {:.2f} %",
                                 label(), record.train_loss, record.train_accuracy * 100,
                                 record.validation_loss, record.validation_accuracy * 100);
  if (record.test_accuracy) line += fmt::format("  test acc {:.2f} %", *record.test_accuracy * 100);
  if (record.sparsity > 0) line += fmt::format("  sparsity {:.2f} %", record.sparsity * 100);
  if (record.evaluations)
    line += fmt::format("  search {} pass{}", *record.evaluations,
                        *record.evaluations == 1 ? "" : "es");
  if (record.entropy) line += fmt::format("  entropy {:.2f} bits", *record.entropy);
  line += "  " + human_seconds(seconds);
  if (images_ > 0)  // none if the run was stopped after its last step, in the search
    line += fmt::format("  {:.0f} img/s",
                        static_cast<double>(images_) / std::max(train_seconds_, 1e-9));
  if (epochs_ > epoch_ + 1)
    line += fmt::format("  {} left",
                        human_seconds(seconds * static_cast<double>(epochs_ - epoch_ - 1)));
  say("{}{}", line, improved ? "  best" : "");
}

}  // namespace remcaps
