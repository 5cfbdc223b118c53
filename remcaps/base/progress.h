// A progress bar on stderr, if that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace remcaps {

class Progress {
 public:
  /// `label` stands before the bar ("epoch 3/50"); `total` is a number of images, bytes and so on.
  Progress(std::string label, int64_t total);
  /// Erases an unfinished bar, so that an error message starts on a clean line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws at most ten times a second. `note` stands behind the bar ("loss 0.031  acc 98.2 %").
  void update(int64_t done, const std::string& note = "");

  /// Erases the bar; the caller prints its own summary line.
  void finish();

  /// Units per second since the first update. What was done before it does not count.
  double rate() const;

  static bool on_terminal();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& note);

  std::string label_;
  int64_t total_, done_ = 0, first_ = -1;
  Clock::time_point begin_, drawn_{};
  bool visible_ = false;
};

/// The text of a progress bar, at most `columns` wide. If it would be wider, the bar becomes
/// shorter, then the label loses its beginning ("...capsnet-rem").
std::string progress_line(const std::string& label, double share, const std::string& note,
                          const std::string& left, size_t columns);

/// Columns of the terminal behind STDOUT_FILENO or STDERR_FILENO; nothing if it is none.
std::optional<size_t> terminal_columns(int descriptor);

/// A text without its beginning ("...capsnet-rem"), if it is longer: names of runs begin alike.
std::string shortened_label(const std::string& label, size_t columns);

/// "1:02:03", "4:05", "12 s"
std::string human_seconds(double seconds);

}  // namespace remcaps
