// Several processes of this program that share a plan of runs on this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace remcaps::cli {

class Workers {
 public:
  /// Starts `command` `count` times. What worker k prints goes to <logs>/<name>-<k>.log. The
  /// workers have a process group of their own: a Ctrl-C is for this process, which passes it on.
  Workers(const std::vector<std::string>& command, int64_t count, const std::filesystem::path& logs,
          const std::string& name);
  /// Those that still run are asked to end, and waited for.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Whether one of them runs. Tells which ended by a signal or with another exit code than 0
  /// (everything was made) and 1 (some runs could not be made), unless signal() was called.
  bool running(const std::function<void(const std::string&)>& tell);
  void signal(int number);

 private:
  struct Worker {
    pid_t pid = -1;  ///< -1 when it has ended
    std::filesystem::path log;
  };
  void end();

  std::vector<Worker> workers_;
  bool signalled_ = false;
};

/// For a worker: it is sent SIGTERM if `parent`, the process that started it, dies or has died.
void end_with_parent(int64_t parent);

}  // namespace remcaps::cli
