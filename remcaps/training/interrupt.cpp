#include "remcaps/training/interrupt.h"

#include <unistd.h>

#include <cerrno>

namespace remcaps {
namespace {

volatile sig_atomic_t caught = 0;

void handle(int signal) {
  const int error = errno;  // of the call that the signal interrupts
  caught = signal;
  constexpr char kText[] = "\nstopping; a second signal ends the program at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  errno = error;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  caught = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // the second signal is not caught any more
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGPIPE, &pipe_, nullptr);
}

int InterruptGuard::signal() {
  return caught;
}

void stop_between_runs() {
  if (caught != 0)
    throw Interrupted("interrupted; the run that was under way is complete, no other was begun",
                      caught);
}

}  // namespace remcaps
