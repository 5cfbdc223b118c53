#include "remcaps/base/message.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <new>

#include "remcaps/base/text.h"

namespace remcaps {
namespace {

bool muted = false;

// Bytes of the printable character with which the text begins; 0 if it begins with none.
size_t printable_length(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (!is_utf8(text.substr(0, length))) return 0;
  const bool control =
      first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0);
  return control ? 0 : length;
}

std::string escaped(char letter) {
  switch (letter) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", static_cast<uint8_t>(letter));
  }
}

/// Writing to a pipe that nobody reads fails while it exists, and does not end the process.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~PipeSignalBlock() {
    const timespec at_once = {};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalBlock(const PipeSignalBlock&) = delete;
  PipeSignalBlock& operator=(const PipeSignalBlock&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = printable_length(text);
    if (length == 0)
      result += escaped(text[0]);
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

void mute_messages(bool mute) noexcept {
  muted = mute;
}

void write_to_stderr(std::string_view text) noexcept {
  if (muted) return;
  const PipeSignalBlock block;
  [[maybe_unused]] const size_t lost = std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void say_line(std::string_view line) noexcept {
  constexpr size_t kLongest = 4000;
  try {
    const bool cut = line.size() > kLongest;
    write_to_stderr(printable(line.substr(0, kLongest)) + (cut ? " [...]\n" : "\n"));
  } catch (const std::bad_alloc&) {
    write_to_stderr("not enough memory for a message\n");
  }
}

}  // namespace remcaps
