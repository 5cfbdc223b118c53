#include "remcaps/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "remcaps/base/message.h"

namespace remcaps {

std::optional<size_t> terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return size.ws_col > 20 ? size.ws_col : 80;
}

std::string shortened_label(const std::string& label, size_t columns) {
  constexpr std::string_view kDots = "...";
  if (label.size() <= columns) return label;
  size_t begin = label.size() - (columns - std::min(columns, kDots.size()));
  while (begin < label.size() && (static_cast<unsigned char>(label[begin]) & 0xC0) == 0x80) ++begin;
  return std::string(kDots) + label.substr(begin);
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string progress_line(const std::string& label, double share, const std::string& note,
                          const std::string& left, size_t columns) {
  constexpr size_t kLongestBar = 24, kShortestBar = 4, kBrackets = 3, kShortestLabel = 12;
  const std::string rest =
      fmt::format(" {:3.0f} %  {}{}{} left", share * 100, note, note.empty() ? "" : "  ", left);
  const size_t shown_label = std::min(label.size(), kShortestLabel);
  size_t bar = 0;  // none if even a short one does not fit
  if (shown_label + kBrackets + kShortestBar + rest.size() <= columns)
    bar = std::clamp(columns - std::min(columns, label.size() + kBrackets + rest.size()),
                     kShortestBar, kLongestBar);
  const size_t taken = rest.size() + (bar > 0 ? bar + kBrackets : 0);
  std::string line = shortened_label(label, columns - std::min(columns, taken));
  const auto filled = static_cast<size_t>(share * static_cast<double>(bar));
  if (bar > 0) line += fmt::format(" [{:=<{}}{: <{}}]", "", filled, "", bar - filled);
  line += rest;
  if (line.size() > columns) line.resize(columns);
  return line;
}

bool Progress::on_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
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
  const double share =
      std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  const double speed = rate();
  const std::string left =
      speed > 0 ? human_seconds(static_cast<double>(total_ - done_) / speed) : "?";
  const std::string line =
      progress_line(label_, share, note, left, terminal_columns(STDERR_FILENO).value_or(80) - 1);
  write_to_stderr("\r\033[K" + printable(line));
  visible_ = true;
}

void Progress::finish() {
  if (!visible_) return;
  write_to_stderr("\r\033[K");
  visible_ = false;
}

}  // namespace remcaps
