#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/slurm.h"
#include "cli/status.h"
#include "cli/workers.h"
#include "remcaps/base/error.h"
#include "remcaps/base/message.h"
#include "remcaps/base/progress.h"
#include "remcaps/report/figure.h"
#include "remcaps/report/reproduction.h"
#include "remcaps/report/table.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"

namespace remcaps::cli {
namespace {

struct ReproduceCommand {
  std::vector<std::string> names;
  std::string seeds = "42", format = "text", shard;
  std::filesystem::path figures = "figures";
  bool dry = false, commands = false;
  int64_t jobs = 1;
  int64_t worker_of = 0;  ///< the number of processes, if --jobs has started this one
  int64_t parent = 0;     ///< the process that has started it
  std::string submit;
  SlurmOptions slurm;
  ReproduceOptions options;
  PlaceOptions place;
};

void list_reproductions() {
  for (const Reproduction& each : reproductions())
    fmt::print("{:<34} {:>2} recipes  {}\n", each.name, each.recipes.size(), each.about);
}

const char* state_text(PlannedRun::State state) {
  switch (state) {
    case PlannedRun::State::kMissing:
      return "to train";
    case PlannedRun::State::kInterrupted:
      return "to resume";
    case PlannedRun::State::kTraining:
      return "in training";
    case PlannedRun::State::kFinished:
      return "finished";
  }
  return "";
}

bool starts_another(const PlannedRun& run, const std::vector<PlannedRun>& plan) {
  return std::any_of(plan.begin(), plan.end(), [&](const PlannedRun& other) {
    return load_recipe(other.recipe).train.start_recipe == run.recipe;
  });
}

// A table of the runs that are finished, or a figure if all of its runs are. Nothing if --only
// leaves none of a figure's runs.
void show_result(const ReproduceCommand& command, const Reproduction& wanted,
                 const std::vector<PlannedRun>& plan) {
  const auto finished = [](const PlannedRun& run) {
    return run.state == PlannedRun::State::kFinished;
  };
  if (wanted.figure.empty()) {
    std::vector<std::filesystem::path> folders;
    for (const PlannedRun& run : plan)
      if (finished(run)) folders.push_back(run.folder);
    const FoundResults found = find_results(folders);
    fmt::print("{}", render_table(paper_table(wanted.name), found.results, command.format,
                                  terminal_columns(STDOUT_FILENO)));
    print_notes(found.notes());
    return;
  }
  if (plan.empty() || !std::all_of(plan.begin(), plan.end(), finished)) return;
  // A figure shows one seed of each recipe. A run represents the one that it starts from.
  FigureOptions figure;
  figure.data = command.place.data;
  figure.device = command.options.device;
  for (const PlannedRun& run : plan)
    if (run.seed == command.options.seeds.front() && !starts_another(run, plan))
      figure.runs.push_back(run.folder.string());
  const FigureFiles files = write_figure(wanted.figure, figure, command.figures / wanted.name);
  fmt::print("{}\n{}\n", files.svg.string(), files.csv.string());
}

// What every process that works on this plan is told. Without --device each chooses that of its own
// machine, which may have a GPU where this one has none.
std::vector<std::string> common_options(const ReproduceCommand& command) {
  std::vector<std::string> words;
  if (command.place.gives_device()) words = {"--device", command.place.device};
  if (!command.place.data.empty())
    words.insert(words.end(), {"--data", std::filesystem::absolute(command.place.data).string()});
  return words;
}

// This command for another process that works on the same plan.
std::vector<std::string> worker_command(const ReproduceCommand& command) {
  std::vector<std::string> words = {this_program(), "reproduce"};
  words.insert(words.end(), command.names.begin(), command.names.end());
  words.insert(words.end(), {"--seeds", command.seeds, "--runs",
                             std::filesystem::absolute(command.options.runs).string()});
  for (const std::string& pattern : command.options.only)
    words.insert(words.end(), {"--only", pattern});
  for (const std::string& change : command.options.overrides)
    words.insert(words.end(), {"--set", change});
  const auto common = common_options(command);
  words.insert(words.end(), common.begin(), common.end());
  return words;
}

// A line for each run that is neither finished nor in training, for a shell.
void print_commands(const ReproduceCommand& command, const std::vector<PlannedRun>& plan) {
  for (size_t k = 0; k < plan.size(); ++k) {
    const PlannedRun& run = plan[k];
    if (!command.options.shard.has(k) || run.state >= PlannedRun::State::kTraining) continue;
    const auto base = base_of(run);
    if (base && base->state != PlannedRun::State::kFinished) {
      say("note: {}, seed {} needs {}; print the commands again when that is finished", run.recipe,
          run.seed, base->recipe);
      continue;
    }
    std::vector<std::string> words = {this_program()};
    if (run.state == PlannedRun::State::kInterrupted) {
      words.insert(words.end(), {"resume", std::filesystem::absolute(run.folder).string()});
    } else {
      words.insert(words.end(),
                   {"train", run.recipe, "--once", "--seed", std::to_string(run.seed), "--out",
                    std::filesystem::absolute(run.folder.parent_path()).string()});
      for (const std::string& change : overrides_of(run, command.options))
        words.insert(words.end(), {"--set", change});
    }
    const auto common = common_options(command);
    words.insert(words.end(), common.begin(), common.end());
    fmt::print("{}\n", shell_words(words));
  }
}

// "main", or "main-and-3-more": for files that belong to all of its names.
std::string file_name(const ReproduceCommand& command) {
  if (command.names.size() == 1) return command.names.front();
  return fmt::format("{}-and-{}-more", command.names.front(), command.names.size() - 1);
}

// `remcaps status` shows the runs that nobody has begun too.
void keep_plans(const ReproduceCommand& command, const std::vector<Reproduction>& wanted,
                const std::vector<PlannedRun>& plan) {
  for (const Reproduction& each : wanted)
    write_plan(command.options.runs, each.name, runs_of(each, plan, command.options));
}

// A job array with a task for each run that is not finished, then a job that waits for it, trains
// what a task left behind and prints the table.
void submit(const ReproduceCommand& command, const std::vector<Reproduction>& wanted,
            const std::vector<PlannedRun>& plan) {
  SlurmOptions slurm = command.slurm;
  slurm.name = file_name(command);
  slurm.folder = std::filesystem::absolute(command.options.runs) / "slurm";
  slurm.command = worker_command(command);
  slurm.shards = static_cast<int64_t>(plan.size());
  for (size_t k = 0; k < plan.size(); ++k)
    if (plan[k].state < PlannedRun::State::kTraining)
      slurm.tasks.push_back(static_cast<int64_t>(k) + 1);
  slurm.last_command = slurm.command;
  slurm.last_command.insert(
      slurm.last_command.end(),
      {"--format", command.format, "--figures", std::filesystem::absolute(command.figures).string(),
       "--shard", "1/1"});
  const std::string scripts = slurm_scripts_text(slurm);  // nothing is written if there can be none
  if (command.dry) {
    fmt::print("{}", scripts);
    return;
  }
  keep_plans(command, wanted, plan);
  fmt::print("{}", submit_to_slurm(slurm));
}

// What a person sees while several processes work: a line when the state of a run changes, and on a
// terminal a table of the runs that are under way.
class SweepDisplay {
 public:
  SweepDisplay(const std::vector<PlannedRun>& plan, const Shard& shard) {
    for (size_t k = 0; k < plan.size(); ++k) {
      if (!shard.has(k)) continue;
      planned_.push_back(plan[k]);
      RunStatus& run = runs_.emplace_back();
      run.recipe = plan[k].recipe;
      run.seed = plan[k].seed;
      run.folder = plan[k].folder;
      run = look(runs_.size() - 1);
    }
  }
  ~SweepDisplay() { erase(); }
  SweepDisplay(const SweepDisplay&) = delete;
  SweepDisplay& operator=(const SweepDisplay&) = delete;

  void update() {
    erase();
    for (size_t k = 0; k < runs_.size(); ++k) {
      if (runs_[k].state == State::kFinished) continue;
      const RunStatus before = std::exchange(runs_[k], look(k));
      if (runs_[k].state != before.state) announce(k);
    }
    draw();
  }

  /// Says it above the table.
  void tell(const std::string& text) {
    erase();
    say("{}", text);
    draw();
  }

  /// What stands on the terminal stays there: something else has been written below the table.
  void leave() { lines_ = 0; }

  /// Erases the table. Returns how many runs are not finished, and says why, if it has not yet.
  int finish() {
    update();
    erase();
    int unfinished = 0;
    for (size_t k = 0; k < runs_.size(); ++k) {
      if (runs_[k].state == State::kFinished) continue;
      ++unfinished;
      if (runs_[k].state == State::kFailed && !announced_.contains(k)) announce(k);
    }
    return unfinished;
  }

 private:
  using State = RunStatus::State;

  // The last known state if a worker changes the run's files between a look and a read.
  RunStatus look(size_t k) const {
    try {
      return remcaps::status_of(planned_[k]);
    } catch (const std::exception&) {
      return runs_[k];
    }
  }

  void announce(size_t k) {
    const RunStatus& run = runs_[k];
    if (run.state == State::kWaiting || run.state == State::kStarting) return;
    std::string text = state_name(run.state);
    if (run.state == State::kFinished && run.test_accuracy)
      text += fmt::format(", test accuracy {:.2f} %", *run.test_accuracy * 100);
    if (!run.reason.empty()) text += ": " + run.reason;
    say("{}, seed {}: {}", run.recipe, run.seed, text);
    announced_.insert(k);
  }

  void draw() {
    if (!Progress::on_terminal()) return;
    const std::string text =
        status_text(runs_, terminal_columns(STDERR_FILENO), /*only_begun=*/true);
    lines_ = std::count(text.begin(), text.end(), '\n');
    // Lines that are too long are cut by the terminal.
    write_to_stderr("\033[?7l" + text + "\033[?7h");
  }

  void erase() {
    if (lines_ > 0) write_to_stderr(fmt::format("\033[{}F\033[J", lines_));
    lines_ = 0;
  }

  std::vector<RunStatus> runs_;
  std::vector<PlannedRun> planned_;
  std::set<size_t> announced_;
  int64_t lines_ = 0;  ///< on the terminal
};

// Several processes of this program make the runs. Returns how many are not finished then.
int work_side_by_side(const ReproduceCommand& command, const std::vector<PlannedRun>& plan) {
  using Clock = std::chrono::steady_clock;
  const ReproduceOptions& options = command.options;
  std::vector<std::string> words = worker_command(command);
  const int threads = std::max(1, at::get_num_threads() / static_cast<int>(command.jobs));
  words.insert(words.end(),
               {"--worker-of", std::to_string(command.jobs), "--parent", std::to_string(::getpid()),
                "--shard", fmt::format("{}/{}", options.shard.index, options.shard.count),
                "--threads", std::to_string(threads)});
  if (options.budget > 0)
    words.insert(words.end(), {"--budget", fmt::format("{}", options.budget)});
  const InterruptGuard guard;
  Workers workers(words, command.jobs, options.runs / "jobs", file_name(command));
  SweepDisplay display(plan, options.shard);
  const auto tell = [&display](const std::string& text) { display.tell(text); };
  bool stopping = false;
  for (auto drawn = Clock::now(); workers.running(tell);) {
    if (!stopping && InterruptGuard::signal() != 0) {
      stopping = true;
      display.leave();  // the guard has written that it stops
      workers.signal(SIGTERM);
    }
    if (Clock::now() - drawn >= std::chrono::seconds(1)) {
      display.update();
      drawn = Clock::now();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const int unfinished = display.finish();
  if (stopping)
    throw Interrupted("interrupted; the runs are saved; the same command goes on with them",
                      InterruptGuard::signal());
  return unfinished;
}

// One process makes the runs. Returns how many could not be made.
int work_alone(const ReproduceCommand& command, std::vector<PlannedRun>& plan) {
  int failures = 0;
  train_missing(plan, command.options,
                {.on_start =
                     [](const PlannedRun& run, const std::string& limit) {
                       say("{}, seed {}: {} ({})", run.recipe, run.seed, state_text(run.state),
                           limit);
                     },
                 .on_skip =
                     [](const PlannedRun& run, const std::string& reason) {
                       say("{}, seed {}: skipped for now: {}", run.recipe, run.seed, reason);
                     },
                 .on_failure =
                     [&failures](const PlannedRun& run, const std::string& message) {
                       say("{}, seed {}: {}", run.recipe, run.seed, message);
                       ++failures;
                     }});
  return failures;
}

// Prints what can be shown. Returns how many tables and figures cannot be.
int show_results(const ReproduceCommand& command, const std::vector<Reproduction>& wanted,
                 const std::vector<PlannedRun>& plan) {
  int failures = 0;
  for (const Reproduction& each : wanted) {
    if (each.name != wanted.front().name) fmt::print("\n");
    try {
      show_result(command, each, runs_of(each, plan, command.options));
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      if (wanted.size() == 1 || std::ferror(stdout) != 0) throw;
      say("{}: {}", each.name, error_text(error));
      ++failures;
    }
  }
  return failures;
}

void run_reproduce(ReproduceCommand command) {
  if (command.worker_of > 0) end_with_parent(command.parent);
  if (command.names == std::vector<std::string>{"list"}) return list_reproductions();
  std::vector<Reproduction> wanted;
  for (const std::string& name : command.names) wanted.push_back(reproduction(name));
  command.options.seeds = parse_seeds(command.seeds);
  command.options.data = command.place.data;
  check_device_name(command.place.device);
  command.options.shard = parse_shard(command.shard);
  std::vector<PlannedRun> plan = plan_runs(wanted, command.options);
  if (command.worker_of == 0)
    for (size_t k = 0; k < plan.size(); ++k)
      if (command.options.shard.has(k)) print_notes(notes_on_passed_over(plan[k]));
  if (command.commands) return print_commands(command, plan);
  if (!command.submit.empty()) return submit(command, wanted, plan);
  if (command.dry) {
    for (size_t k = 0; k < plan.size(); ++k)
      if (command.options.shard.has(k))
        fmt::print("{:<11} {} seed {}\n", state_text(plan[k].state), plan[k].recipe, plan[k].seed);
    return;
  }
  command.options.device = parse_device(command.place.device);
  if (command.worker_of > 0) {
    command.options.workers = command.worker_of;
  } else {
    keep_plans(command, wanted, plan);
  }
  int failures = 0, not_shown = 0;
  if (command.jobs > 1) {
    failures = work_side_by_side(command, plan);
    plan = plan_runs(wanted, command.options);
  } else {
    failures = work_alone(command, plan);
  }
  if (command.options.shard.everything() && command.worker_of == 0)
    not_shown = show_results(command, wanted, plan);
  std::fflush(stdout);
  check(failures == 0, "{} of {} runs of {} could not be made", failures, plan.size(),
        names_of(wanted));
  check(not_shown == 0, "{} of {} tables and figures could not be made", not_shown, wanted.size());
}

}  // namespace

void add_reproduce(CLI::App& app) {
  auto* command = app.add_subcommand(
      "reproduce", "Train what is missing for the paper's tables and figures, then print them");
  auto options = std::make_shared<ReproduceCommand>();
  command
      ->add_option("names", options->names,
                   "Tables and figures, trained in this order; `list` names them all")
      ->required();
  command->add_option("--seeds", options->seeds, "42..46 or 42,45")->capture_default_str();
  auto* budget =
      command
          ->add_option("--budget", options->options.budget,
                       "Minutes for all runs together, shared equally (default: no limit)")
          ->check(above_zero());
  command
      ->add_option("--runs", options->options.runs,
                   "Folder of the runs, <recipe>/seed-<n> below it; finished ones are used, "
                   "interrupted ones resumed, those that were trained otherwise passed over")
      ->capture_default_str();
  command
      ->add_option("--set", options->options.overrides,
                   "Change a key of every recipe, repeatable: train.epochs=20")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--format", options->format, "A table's: text, markdown, latex, csv or json")
      ->capture_default_str()
      ->check(CLI::IsMember(table_formats()));
  command->add_option("--figures", options->figures, "Folder for figures")->capture_default_str();
  command
      ->add_option("--only", options->options.only,
                   "Only the recipes that match, repeatable: 'fashion-mnist/*'")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  command
      ->add_option("--shard", options->shard,
                   "Share I of N of the runs; no table is printed (default: the place in a Slurm "
                   "job array, else everything)")
      ->type_name("I/N");
  auto* jobs = command
                   ->add_option("--jobs", options->jobs,
                                "Runs that are trained side by side on this machine")
                   ->capture_default_str()
                   ->check(between(1, 256));
  auto* parent = command->add_option("--parent", options->parent, "")->group("");
  command->add_option("--worker-of", options->worker_of, "")
      ->group("")
      ->needs(parent)
      ->excludes(jobs);
  auto* commands = command
                       ->add_flag("--commands", options->commands,
                                  "Print a command for each run that is missing, and end")
                       ->excludes(budget)
                       ->excludes(jobs);
  auto* submit = command
                     ->add_option("--submit", options->submit,
                                  "Submit the runs and a last job that prints the table: slurm")
                     ->check(CLI::IsMember({"slurm"}))
                     ->excludes(commands)
                     ->excludes(budget)
                     ->excludes(jobs);
  options->slurm.add_to(*command, submit);
  command->add_flag("--dry-run", options->dry,
                    "Only say what would be trained, or show the jobs of --submit");
  options->place.add_to(*command);
  command->footer(
      "Examples:\n  remcaps reproduce list\n"
      "  remcaps reproduce mnist --seeds 42..46 --budget 600 --device cuda\n"
      "  remcaps reproduce mnist --seeds 42..46 --jobs 4 --device cuda\n"
      "  remcaps reproduce mnist keys-mnist levels --device cuda\n"
      "  remcaps reproduce mnist --seeds 42..46 --commands | parallel -j4\n"
      "  remcaps reproduce mnist --seeds 42..46 --submit slurm --gpus 1 --time 4:00:00");
  command->callback([options] { run_reproduce(*options); });
}

}  // namespace remcaps::cli
