#include "tests/cli/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

namespace remcaps::testing {
namespace {

int status_to_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void spoil_stderr(Program::Options::Stderr how) {
  using Stderr = Program::Options::Stderr;
  if (how == Stderr::kClosed) ::close(STDERR_FILENO);
  if (how == Stderr::kFull) ::dup2(::open("/dev/full", O_WRONLY), STDERR_FILENO);
  int ends[2];
  if (how == Stderr::kBrokenPipe && ::pipe(ends) == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);  // nobody reads
    ::close(ends[1]);
  }
}

}  // namespace

Program::Program(const std::filesystem::path& folder, const std::vector<std::string>& arguments,
                 const Options& options) {
  static int count = 0;
  out_ = folder / fmt::format("program-{}.out", ++count);
  err_ = folder / fmt::format("program-{}.err", count);
  std::vector<char*> argv = {const_cast<char*>("remcaps")};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  check(pid_ >= 0, "cannot fork");
  if (pid_ > 0) return;
  // The child: only calls that are safe between fork and exec.
  const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  spoil_stderr(options.err);
  if (::chdir(folder.c_str()) != 0) ::_exit(127);
  if (options.file_limit > 0) {
    const rlimit limit = {static_cast<rlim_t>(options.file_limit),
                          static_cast<rlim_t>(options.file_limit)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);  // write() fails with EFBIG instead
  }
  if (options.memory_limit > 0) {
    const rlimit limit = {static_cast<rlim_t>(options.memory_limit),
                          static_cast<rlim_t>(options.memory_limit)};
    ::setrlimit(RLIMIT_AS, &limit);
    const rlimit seconds = {60, 60};  // a program that waits for memory would not end
    ::setrlimit(RLIMIT_CPU, &seconds);
  }
  char* no_variables[] = {nullptr};
  if (options.empty_environment) ::execve(REMCAPS_PROGRAM, argv.data(), no_variables);
  ::execv(REMCAPS_PROGRAM, argv.data());
  ::_exit(127);
}

Program::~Program() {
  if (reaped_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

bool Program::running() {
  if (!reaped_) reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return !reaped_;
}

ProgramResult Program::wait() {
  if (!reaped_) ::waitpid(pid_, &status_, 0);
  reaped_ = true;
  return {status_to_code(status_), read_file(out_), read_file(err_)};
}

ProgramResult run_program(const std::filesystem::path& folder,
                          const std::vector<std::string>& arguments,
                          const Program::Options& options) {
  return Program(folder, arguments, options).wait();
}

}  // namespace remcaps::testing
