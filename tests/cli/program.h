// Runs the real program in a child process.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps::testing {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + the signal if one ended it
  std::string out, err;
};

/// A running program; killed if it outlives the test.
class Program {
 public:
  struct Options {
    int64_t file_limit = 0;  ///< bytes a file may have (a stand-in for a full disk); 0: no limit
    enum class Stderr { kFile, kClosed, kFull, kBrokenPipe } err = Stderr::kFile;
    bool empty_environment = false;  ///< as by `env -i`
    int64_t memory_limit = 0;        ///< bytes, as by `ulimit -v`; 0: no limit
  };

  /// Starts `remcaps arguments...`; its output goes to files in `folder`, which is also its working
  /// folder.
  Program(const std::filesystem::path& folder, const std::vector<std::string>& arguments,
          const Options& options);
  Program(const std::filesystem::path& folder, const std::vector<std::string>& arguments)
      : Program(folder, arguments, Options{}) {}
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  bool running();
  ProgramResult wait();

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool reaped_ = false;
  std::filesystem::path out_, err_;
};

/// Starts it and waits.
ProgramResult run_program(const std::filesystem::path& folder,
                          const std::vector<std::string>& arguments,
                          const Program::Options& options = {});

}  // namespace remcaps::testing
