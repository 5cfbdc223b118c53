// Messages for people, on stderr. Losing them never ends the program.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace remcaps {

/// The text on one line: control characters, such as line breaks and a terminal's codes, and bytes
/// that are not UTF-8 are written as \n or \x1b. Names that come from files may hold anything.
std::string printable(std::string_view text);

/// Stops all messages of this process, or lets them through again. If several processes do the same
/// work, only one of them should write.
void mute_messages(bool mute) noexcept;

/// Writes to stderr. Nothing happens if that fails: the terminal may be gone.
void write_to_stderr(std::string_view text) noexcept;

/// Writes one printable line to stderr. Very long lines are cut.
void say_line(std::string_view line) noexcept;

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_line(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace remcaps
