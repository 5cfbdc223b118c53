#include "cli/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"

namespace remcaps::cli {
namespace {

pid_t start_process(const std::vector<std::string>& command, const std::filesystem::path& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0666);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0], &files, &attributes, words.data(), ::environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  check(error == 0, "{}: cannot be started, with its output in {}: {}", command[0], log.string(),
        std::strerror(error));
  return pid;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("by signal {}", WTERMSIG(status))
                             : fmt::format("with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Workers::Workers(const std::vector<std::string>& command, int64_t count,
                 const std::filesystem::path& logs, const std::string& name) {
  make_folder(logs);
  // If it is ignored, as a parent may have left it, nobody can learn how a worker ends.
  ::signal(SIGCHLD, SIG_DFL);
  try {
    for (int64_t k = 1; k <= count; ++k) {
      Worker& worker = workers_.emplace_back();
      worker.log = logs / fmt::format("{}-{}.log", name, k);
      worker.pid = start_process(command, worker.log);
    }
  } catch (...) {
    end();
    throw;
  }
}

Workers::~Workers() {
  end();
}

void Workers::end() {
  signal(SIGTERM);
  for (const Worker& worker : workers_)
    if (worker.pid > 0) ::waitpid(worker.pid, nullptr, 0);
}

bool Workers::running(const std::function<void(const std::string&)>& tell) {
  bool any = false;
  for (Worker& worker : workers_) {
    if (worker.pid < 0) continue;
    int status = 0;
    if (::waitpid(worker.pid, &status, WNOHANG) == 0) {
      any = true;
      continue;
    }
    worker.pid = -1;
    const bool expected = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    if (!expected && !signalled_)
      tell(fmt::format("a worker ended {}; its messages are in {}", how_it_ended(status),
                       worker.log.string()));
  }
  return any;
}

void Workers::signal(int number) {
  signalled_ = true;
  for (const Worker& worker : workers_)
    if (worker.pid > 0) ::kill(worker.pid, number);
}

void end_with_parent(int64_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::raise(SIGTERM);  // it died before
}

}  // namespace remcaps::cli
