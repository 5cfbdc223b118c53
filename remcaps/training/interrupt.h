// Ctrl-C and SIGTERM: the run finishes its step, saves its state and ends.
#pragma once

#include <signal.h>

#include <string>

#include "remcaps/base/error.h"

namespace remcaps {

/// A signal asked the run to stop, and the run has been saved. The program exits with 128 + the
/// signal (130 for Ctrl-C), which is how a shell reports a program that a signal ended.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& message, int signal) : Error(message), signal_(signal) {}
  int exit_code() const { return 128 + signal_; }

 private:
  int signal_;
};

/// Catches SIGINT and SIGTERM while it exists, then restores the former handlers. The first signal
/// prints "stopping". A second one ends the program at once. SIGPIPE is ignored meanwhile: a run
/// goes on if nobody reads its messages any more.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that the last guard caught, or 0.
  static int signal();

 private:
  // The former handlers.
  struct sigaction interrupt_ = {};
  struct sigaction terminate_ = {};
  struct sigaction pipe_ = {};
};

/// To be called between two runs. A signal during the last evaluation of a run does not end that
/// run. This function then throws Interrupted, so that the next run does not begin.
void stop_between_runs();

}  // namespace remcaps
