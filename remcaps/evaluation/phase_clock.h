// Where the time of a step goes, for `remcaps bench`.
#pragma once

#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace remcaps {

/// Adds up the time between marks by the names of phases. On a GPU every mark waits for the device,
/// so the whole work becomes slower.
class PhaseClock {
 public:
  explicit PhaseClock(torch::Device device) : device_(device), last_(now()) {}

  /// The time since the last mark belongs to no phase.
  void skip() { last_ = now(); }
  /// The time since the last mark belongs to `phase`.
  void mark(const std::string& phase) {
    const Time time = now();
    const double seconds = std::chrono::duration<double>(time - last_).count();
    last_ = time;
    const auto found = std::find_if(phases_.begin(), phases_.end(),
                                    [&](const auto& item) { return item.first == phase; });
    if (found == phases_.end())
      phases_.emplace_back(phase, seconds);
    else
      found->second += seconds;
  }

  /// The seconds of every phase, in the order of their first marks.
  const std::vector<std::pair<std::string, double>>& phases() const { return phases_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  Time now() const {
    if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
    return std::chrono::steady_clock::now();
  }

  torch::Device device_;
  Time last_;
  std::vector<std::pair<std::string, double>> phases_;
};

/// Marks a phase if there is a clock.
inline void mark(PhaseClock* clock, const char* phase) {
  if (clock != nullptr) clock->mark(phase);
}

}  // namespace remcaps
