#include "remcaps/tensors/cut_file.h"

#include <signal.h>
#include <unistd.h>

namespace remcaps {
namespace {

// Only what is safe in a signal's handler.
void tell_and_exit(int) {
  constexpr char kText[] = "remcaps: a file became shorter while it was read\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(1);
}

}  // namespace

void exit_if_a_mapped_file_is_cut() {
  struct sigaction action {};
  action.sa_handler = tell_and_exit;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace remcaps
