#include "remcaps/training/interrupt.h"

#include <signal.h>

namespace remcaps {
namespace {

volatile sig_atomic_t caught = 0;

void handle(int signal) {
  caught = signal;
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // SA_RESETHAND: the second signal is not caught any more.
  action.sa_flags = SA_RESTART | (handler == SIG_DFL ? 0 : SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  caught = 0;
  install(handle);
}

InterruptGuard::~InterruptGuard() {
  install(SIG_DFL);
}

int InterruptGuard::signal() {
  return caught;
}

}  // namespace remcaps
