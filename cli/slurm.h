// Job arrays for Slurm.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace remcaps::cli {

struct SlurmOptions {
  std::string name;                       ///< of the jobs
  std::filesystem::path folder;           ///< absolute; for scripts and output
  std::vector<std::string> command;       ///< a task adds --shard I/N
  std::vector<std::string> last_command;  ///< of the job that runs after the array
  std::vector<int64_t> tasks;     ///< I of the tasks; if there are none, only the last job runs
  int64_t shards = 1;             ///< N
  std::string gpus, time;         ///< --gpus, --time; empty: not asked for
  std::vector<std::string> more;  ///< further options of sbatch
  int64_t at_once = 0;            ///< tasks at a time; 0: no limit

  void add_to(CLI::App& command, CLI::Option* submit);
};

/// Both scripts, as --dry-run shows them.
std::string slurm_scripts_text(const SlurmOptions& options);

/// Writes both scripts, submits them by sbatch and says what was submitted. Error if sbatch fails;
/// if it refuses the last job, the array is cancelled.
std::string submit_to_slurm(const SlurmOptions& options);

/// The program that runs now.
std::string this_program();

/// Words as a line for a shell, quoted where need be.
std::string shell_words(const std::vector<std::string>& words);

}  // namespace remcaps::cli
