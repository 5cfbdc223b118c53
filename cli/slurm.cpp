#include "cli/slurm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/options.h"
#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/message.h"
#include "remcaps/base/text.h"

namespace remcaps::cli {
namespace fs = std::filesystem;

namespace {

std::string header(const SlurmOptions& options, const std::string& name,
                   const std::string& output) {
  std::string text = "#!/bin/bash\n";
  const auto add = [&](const std::string& option) {
    if (printable(option) != option)
      throw UsageError(fmt::format("{}: cannot stand in a job's script", option));
    text += fmt::format("#SBATCH {}\n", option);
  };
  add("--job-name=" + name);
  add(fmt::format("--output=\"{}\"", (options.folder / output).string()));
  if (!options.time.empty()) add("--time=" + options.time);
  if (!options.gpus.empty()) add("--gres=gpu:" + options.gpus);
  for (const std::string& option : options.more) add(option);
  return text;
}

std::string array_script(const SlurmOptions& options) {
  std::string text = header(options, options.name, options.name + "-%A-%a.out");
  text += fmt::format("#SBATCH --array={}", fmt::join(options.tasks, ","));
  if (options.at_once > 0) text += fmt::format("%{}", options.at_once);
  // exec: Slurm's signals reach the program, which then saves its state.
  return text + fmt::format("\nexec {} --shard \"$SLURM_ARRAY_TASK_ID/{}\"\n",
                            shell_words(options.command), options.shards);
}

std::string last_script(const SlurmOptions& options) {
  return header(options, options.name + "-table", options.name + "-table-%j.out") +
         fmt::format("exec {}\n", shell_words(options.last_command));
}

// Runs sbatch, returns the number of its job.
std::string sbatch(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((shell_words(words) + " 2>&1").c_str(), "r"),
                                             ::pclose);
  check(pipe != nullptr, "sbatch: cannot be started");
  std::string output;
  for (int letter = std::fgetc(pipe.get()); letter != EOF; letter = std::fgetc(pipe.get()))
    output += static_cast<char>(letter);
  const int status = ::pclose(pipe.release());
  check(status == 0, "sbatch failed: {}", first_line(output));
  return output.substr(0, output.find_first_of(";\n"));  // "12" or "12;cluster"
}

}  // namespace

void SlurmOptions::add_to(CLI::App& app, CLI::Option* submit) {
  app.add_option("--gpus", gpus, "With --submit: GPUs of a job, 1 or a100:1")->needs(submit);
  app.add_option("--time", time, "With --submit: time limit of a job, as Slurm writes it")
      ->needs(submit);
  app.add_option("--at-once", at_once, "With --submit: tasks that run at a time (default: all)")
      ->needs(submit)
      ->check(at_least(1));
  app.add_option("--sbatch", more,
                 "With --submit: another option of sbatch, repeatable: --sbatch=--partition=gpu")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->needs(submit);
}

std::string slurm_scripts_text(const SlurmOptions& options) {
  std::string text;
  if (!options.tasks.empty())
    text = fmt::format("# {}.sh\n{}\n", options.name, array_script(options));
  return text +
         fmt::format("# {}-table.sh, after the tasks\n{}", options.name, last_script(options));
}

std::string submit_to_slurm(const SlurmOptions& options) {
  make_folder(options.folder);
  const fs::path array_file = options.folder / (options.name + ".sh");
  const fs::path last_file = options.folder / (options.name + "-table.sh");
  std::string text, array;
  std::vector<std::string> last = {last_file.string()};
  write_atomically(last_file, last_script(options));
  if (!options.tasks.empty()) {
    write_atomically(array_file, array_script(options));
    array = sbatch({array_file.string()});
    text = fmt::format("job {}: {} runs\n", array, options.tasks.size());
    last.insert(last.begin(), "--dependency=afterany:" + array);
  }
  try {
    const std::string job = sbatch(last);
    return text +
           fmt::format(
               "job {}: the table, then in {}\n", job,
               (options.folder / fmt::format("{}-table-{}.out", options.name, job)).string());
  } catch (const Error&) {
    if (!array.empty()) {
      [[maybe_unused]] const int ignored = std::system(shell_words({"scancel", array}).c_str());
    }
    throw;
  }
}

std::string this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "remcaps" : path.string();
}

std::string shell_words(const std::vector<std::string>& words) {
  const auto quoted = [](const std::string& word) {
    const bool plain =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char letter) {
          return std::isalnum(letter) != 0 ||
                 std::string_view("_-./=,:+@%").find(static_cast<char>(letter)) !=
                     std::string_view::npos;
        });
    if (plain) return word;
    std::string text = "'";
    for (const char letter : word)
      text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    return text + "'";
  };
  std::vector<std::string> all;
  for (const std::string& word : words) all.push_back(quoted(word));
  return fmt::format("{}", fmt::join(all, " "));
}

}  // namespace remcaps::cli
