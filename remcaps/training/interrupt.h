// Ctrl-C and SIGTERM: the step in progress is finished, the run saved, the program ends.
#pragma once

#include <signal.h>

#include <string>

#include "remcaps/base/error.h"

namespace remcaps {

/// The run was asked to stop and has been saved. The program exits with 128 + the signal (130 for
/// Ctrl-C), as a shell reports a program that the signal ended.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& message, int signal) : Error(message), signal_(signal) {}
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// Catches SIGINT and SIGTERM as long as it lives, and then gives them back to whoever had them.
/// A second signal ends the program at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that came while the last one lived, or 0.
  static int signal();

 private:
  // As they were.
  struct sigaction interrupt_ = {};
  struct sigaction terminate_ = {};
};

/// Between two runs: a signal that came when the first had nothing left but its evaluation did not
/// end it, but Interrupted keeps the next one from beginning.
void stop_between_runs();

}  // namespace remcaps
