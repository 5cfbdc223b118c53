// What a training run prints to stderr: a progress bar on a terminal, and one line per epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "remcaps/base/progress.h"
#include "remcaps/runs/metrics.h"

namespace remcaps {

class TrainingDisplay {
 public:
  /// `epochs` is the recipe's limit, or 0.
  explicit TrainingDisplay(int64_t epochs) : epochs_(epochs) {}

  void begin_epoch(int64_t epoch, int64_t images_done, int64_t images);
  /// The epoch's line shows the rate at the last call. On a GPU the last call must therefore come
  /// after the device has done these images.
  void update(int64_t images_done);
  /// The text behind the bar until the next call.
  void set_note(double loss, double accuracy);
  /// Replaces the bar by one for a pass over a split ("validation", "search, pass 7").
  void begin_pass(const std::string& what, int64_t images);
  void update_pass(int64_t images_done);
  void end_epoch(const EpochRecord& record, bool improved);
  void clear() { bar_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string label() const;

  int64_t epochs_, epoch_ = 0;
  int64_t images_ = 0;  ///< of this epoch, trained by this process
  int64_t first_ = 0;
  Clock::time_point begin_;
  double train_seconds_ = 0;
  std::optional<Progress> bar_;
  std::string note_;
};

}  // namespace remcaps
