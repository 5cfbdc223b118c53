// Errors a user sees: one line that names the thing, what was found and what was expected.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>  // fmt::join, from fmt 11 on

#include <stdexcept>
#include <string>
#include <utility>

namespace remcaps {

/// Something failed: the program prints the message on stderr and exits with 1.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// The command line or a recipe is wrong: the program exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with the formatted message unless `condition` holds.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace remcaps
