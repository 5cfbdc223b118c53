#include "remcaps/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/message.h"

namespace remcaps {
namespace {

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

bool Progress::on_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)), total_(std::max<int64_t>(total, 1)), begin_(Clock::now()) {}

Progress::~Progress() {
  finish();
}

double Progress::rate() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  return seconds > 0 ? static_cast<double>(done_ - std::max<int64_t>(first_, 0)) / seconds : 0;
}

void Progress::update(int64_t done, const std::string& note) {
  done_ = done;
  if (first_ < 0) {
    first_ = done;
    begin_ = Clock::now();
  }
  if (!on_terminal()) return;
  const auto now = Clock::now();
  if (visible_ && now - drawn_ < std::chrono::milliseconds(100) && done < total_) return;
  drawn_ = now;
  draw(note);
}

void Progress::draw(const std::string& note) {
  constexpr int kBar = 24;
  const double share =
      std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  const int filled = static_cast<int>(share * kBar);
  const double speed = rate();
  const std::string left =
      speed > 0 ? human_seconds(static_cast<double>(total_ - done_) / speed) : "?";
  std::string line = fmt::format("{} [{:=<{}}{: <{}}] {:3.0f} %  {}  {} left", label_, "", filled,
                                 "", kBar - filled, share * 100, note, left);
  const auto width = static_cast<size_t>(terminal_width() - 1);
  if (line.size() > width) line.resize(width);
  write_to_stderr("\r\033[K" + printable(line));
  visible_ = true;
}

void Progress::finish() {
  if (!visible_) return;
  write_to_stderr("\r\033[K");
  visible_ = false;
}

}  // namespace remcaps
