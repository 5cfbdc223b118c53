// An environment variable that has a value, or none, as long as a test needs it.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace remcaps::testing {

class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::optional<std::string>& value)
      : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
    set(value);
  }
  ~ScopedVariable() { set(before_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

  void set(const std::optional<std::string>& value) {
    if (value)
      ::setenv(name_.c_str(), value->c_str(), /*replace=*/1);
    else
      ::unsetenv(name_.c_str());
  }

 private:
  const std::string name_;
  std::optional<std::string> before_;
};

}  // namespace remcaps::testing
