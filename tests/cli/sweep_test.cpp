// Many runs: several workers on one folder, lists of commands, job arrays, and their state.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class SweepTest : public CliTest {
 protected:
  /// The two Eff-CapsNet runs for Fashion-MNIST of the paper's first table, six steps an epoch.
  static std::vector<std::string> sweep(const std::vector<std::string>& more = {},
                                        int64_t epochs = 1) {
    std::vector<std::string> arguments = {"reproduce", "main",
                                          "--only",    "fashion-mnist/eff-capsnet",
                                          "--only",    "fashion-mnist/eff-capsnet-r*"};
    for (const char* setting :
         {"dataset.limit_train=96", "dataset.limit_test=32", "dataset.validation=32",
          "train.batch=16", "metrics.every=1", "train.checkpoint_steps=2"})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), {"--set", "train.epochs=" + std::to_string(epochs),
                                       "--format", "csv", "--device", "cpu"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  json statuses(const std::string& folder = "runs") const {
    const ProgramResult result = remcaps({"status", folder, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out).at("runs");
  }

  static void wait_until(Program& program, const std::function<bool()>& holds) {
    while (program.running() && !holds()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  const std::string recipe_ = "fashion-mnist/eff-capsnet";
};

TEST_F(SweepTest, AWorkerSkipsARunInTrainingAndResumesItWhenItsWorkerDies) {
  const ProgramResult whole = remcaps(sweep({"--runs", "whole"}, 2));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  Program first(folder_.path(), sweep({"--shard", "1/2"}, 2));
  const fs::path run = folder_ / "runs" / recipe_ / "seed-42";
  wait_until(first, [&] { return fs::exists(run / "state.safetensors"); });
  first.signal(SIGSTOP);  // it keeps its lock and comes no further
  ASSERT_TRUE(first.running());
  EXPECT_EQ(statuses().at(0).at("state"), "running");
  EXPECT_EQ(statuses().at(1).at("state"), "waiting");

  Program second(folder_.path(), sweep({}, 2));
  const fs::path other = folder_ / "runs" / (recipe_ + "-rem") / "seed-42" / "summary.json";
  wait_until(second, [&] { return fs::exists(other); });
  EXPECT_TRUE(second.running());  // it waits for the first one's run
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 128 + SIGKILL);
  const ProgramResult result = second.wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(recipe_ + ", seed 42: skipped for now: another process"));
  EXPECT_THAT(result.err, HasSubstr(recipe_ + ", seed 42: to resume"));
  EXPECT_EQ(result.out, whole.out);
  for (const std::string& name : {recipe_, recipe_ + "-rem"}) {
    EXPECT_EQ(read_file(folder_ / "runs" / name / "seed-42/metrics.csv"),
              read_file(folder_ / "whole" / name / "seed-42/metrics.csv"));
    EXPECT_FALSE(fs::exists(folder_ / "runs" / name / "seed-42-2"));
  }
  for (const json& each : statuses()) EXPECT_EQ(each.at("state"), "finished");
}

TEST_F(SweepTest, CommandsTrainEachRunOnceAndResumeWhatWasStopped) {
  const ProgramResult printed = remcaps(sweep({"--commands"}));
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(std::count(printed.out.begin(), printed.out.end(), '\n'), 2);
  const std::string line = printed.out.substr(0, printed.out.find('\n'));
  const auto in_a_shell = [&](const std::string& command) {
    return std::system(
        fmt::format("cd '{}' && {} > out 2> err", folder_.path().string(), command).c_str());
  };
  ASSERT_EQ(in_a_shell(line), 0) << read_file(folder_ / "err");
  ASSERT_EQ(in_a_shell(line), 0);
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("skipped: it is finished"));
  EXPECT_FALSE(fs::exists(folder_ / "runs" / recipe_ / "seed-42-2"));

  const ProgramResult rest = remcaps(sweep({"--commands"}));
  EXPECT_THAT(rest.out, HasSubstr(" train " + recipe_ + "-rem --once"));
  EXPECT_EQ(std::count(rest.out.begin(), rest.out.end(), '\n'), 1);
  // Another run of the same seed has a row of its own.
  const fs::path parent = folder_ / "runs" / recipe_;
  fs::copy(parent / "seed-42", parent / "seed-42-2", fs::copy_options::recursive);
  EXPECT_THAT(remcaps({"status"}).out, ContainsRegex("finished  " + recipe_ + " +42-2 "));
  fs::remove_all(parent / "seed-42-2");
  // Without its summary the run counts as stopped.
  fs::remove(folder_ / "runs" / recipe_ / "seed-42/summary.json");
  EXPECT_EQ(statuses().at(0).at("state"), "stopped");
  EXPECT_THAT(remcaps(sweep({"--commands"})).out,
              HasSubstr(" resume " + (folder_ / "runs" / recipe_ / "seed-42").string()));
}

TEST_F(SweepTest, ATrialIsPassedOverAndTheSameCommandTrainsNothingTwice) {
  const std::vector<std::string> trial = {"--only", recipe_, "--set", "train.lr=0.01"};
  ASSERT_EQ(remcaps(sweep(trial)).exit_code, 0);
  const std::string note = "note: runs/" + recipe_ +
                           "/seed-42 is passed over (train.epochs ended it after 1 epoch, "
                           "train.lr=0.01); the new run goes to runs/" +
                           recipe_ + "/seed-42-2\n";
  const std::vector<std::string> timed = sweep({"--set", "train.minutes=0.0001"}, /*epochs=*/0);
  const ProgramResult planned = remcaps(sweep({"--dry-run"}, 2));
  EXPECT_THAT(planned.out, HasSubstr("to train    " + recipe_ + " seed 42\n"));
  EXPECT_THAT(planned.err, HasSubstr(note));
  EXPECT_THAT(remcaps(sweep({"--commands"}, 2)).err, HasSubstr(note));
  EXPECT_EQ(remcaps(sweep({"--shard", "2/2"})).exit_code, 0);  // the other run; it writes the plan
  EXPECT_THAT(remcaps({"status"}).out,
              ContainsRegex("waiting   " + recipe_ + " +42-2 *\nfinished  " + recipe_ + " +42 "));

  const ProgramResult first = remcaps(timed);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("seed-42 is passed over (train.lr=0.01); the new run goes to "));
  EXPECT_TRUE(fs::exists(folder_ / "runs" / recipe_ / "seed-42-2/summary.json"));
  const ProgramResult again = remcaps(timed);
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(again.out, first.out);

  // A command of --commands looks for the same run.
  std::vector<std::string> once = short_training("runs/" + recipe_, {"--once"});
  const ProgramResult trained = remcaps(once);
  EXPECT_THAT(trained.err, HasSubstr("/seed-42 is passed over ("));
  EXPECT_THAT(trained.err, HasSubstr("/seed-42-2 is passed over ("));
  EXPECT_TRUE(fs::exists(folder_ / "runs" / recipe_ / "seed-42-3/summary.json"));
  EXPECT_THAT(remcaps(once).err, HasSubstr("skipped: it is finished"));
}

TEST_F(SweepTest, StatusFitsANarrowTerminalAndTellsTestFromValidation) {
  ASSERT_EQ(remcaps(short_training("runs/" + recipe_, {}, 1)).exit_code, 0);
  const json run = statuses().at(0);
  EXPECT_TRUE(run.at("validation_accuracy").is_number());
  EXPECT_TRUE(run.at("test_accuracy").is_number());
  const std::string piped = remcaps({"status"}).out;
  EXPECT_THAT(piped, HasSubstr("   val %  test % sparse %  entropy  left\n"));
  const auto in_a_terminal = [&](int columns, const std::string& arguments) {
    const int status = std::system(
        fmt::format("cd '{}' && script -qec 'stty cols {}; {} {}' /dev/null < /dev/null > out",
                    folder_.path().string(), columns, REMCAPS_PROGRAM, arguments)
            .c_str());
    EXPECT_EQ(status, 0);
    std::string text = read_file(folder_ / "out");
    std::erase(text, '\r');
    return text;
  };
  EXPECT_EQ(in_a_terminal(200, "status"), piped);
  for (const char* arguments : {"status", "zoo list"}) {
    std::istringstream lines(in_a_terminal(80, arguments));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
  EXPECT_THAT(in_a_terminal(80, "status"), HasSubstr("(a wider terminal has: loss"));
  EXPECT_THAT(in_a_terminal(60, "status"), HasSubstr("finished  ..."));
}

TEST_F(SweepTest, SeveralTablesAreTrainedTogetherAndPrintedInTheirOrder) {
  std::vector<std::string> arguments = sweep();
  arguments.insert(arguments.begin() + 1, "eff-capsnet");
  const ProgramResult result = remcaps(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto both = statuses();
  EXPECT_EQ(both.size(), 2u) << "a run that both tables need is trained once";
  for (const json& each : both) EXPECT_EQ(each.at("state"), "finished");
  const size_t first = result.out.find("F-MNIST,all votes"),
               second = result.out.find("F-MNIST,DR-");
  EXPECT_NE(first, std::string::npos) << result.out;
  EXPECT_NE(second, std::string::npos) << result.out;
  EXPECT_LT(first, second);
  arguments.insert(arguments.end(), {"--submit", "slurm", "--dry-run"});
  EXPECT_THAT(remcaps(arguments).out, HasSubstr("reproduce eff-capsnet main --seeds 42"));
  arguments[2] = "mian";
  expect_one_line(remcaps(arguments), 2, "did you mean main?");
}

TEST_F(SweepTest, AFigureThatCannotBeDrawnLeavesTheTablesAfterIt) {
  // Finished runs, as far as a table can tell; the figure misses the network. No run of
  // perturbations matches --only.
  for (const std::string& recipe : {recipe_, std::string("mnist/dr-capsnet")}) {
    const fs::path run = folder_ / "runs" / recipe / "seed-42";
    make_folder(run);
    const json summary = {{"recipe", recipe}, {"seed", 42}, {"accuracy", 0.5}};
    write_atomically(run / "summary.json", summary.dump());
  }
  const std::vector<std::string> arguments = {
      "reproduce", "couplings-epochs", "perturbations", "main", "--only",   recipe_,
      "--only",    "mnist/dr-capsnet", "--format",      "csv",  "--device", "cpu"};
  const ProgramResult result = remcaps(arguments);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("couplings-epochs: "));
  EXPECT_THAT(result.err, Not(HasSubstr("perturbations: ")));
  EXPECT_THAT(result.err, HasSubstr("1 of 3 tables and figures could not be made"));
  EXPECT_THAT(result.out, HasSubstr("F-MNIST,DR-"));

  // Workers are waited for even if this program was started with SIGCHLD ignored.
  std::string line = fmt::format("cd '{}' && timeout 120 env --ignore-signal=CHLD '{}'",
                                 folder_.path().string(), REMCAPS_PROGRAM);
  for (const std::string& word : arguments) line += fmt::format(" '{}'", word);
  const int status = std::system((line + " --jobs 2 > out 2> err").c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1) << read_file(folder_ / "err");
  EXPECT_THAT(read_file(folder_ / "err"), Not(HasSubstr("a worker ended")));
  EXPECT_EQ(read_file(folder_ / "out"), result.out);
}

TEST_F(SweepTest, AFailedRunIsShownWithItsReasonUntilItIsMade) {
  const std::vector<std::string> wrong = sweep({"--set", "dataset.validation=60000"});
  EXPECT_EQ(remcaps(wrong).exit_code, 1);
  const json failed = statuses().at(0);
  EXPECT_EQ(failed.at("state"), "failed");
  EXPECT_THAT(failed.at("reason").get<std::string>(), HasSubstr("validation"));
  EXPECT_THAT(remcaps({"status"}).out, HasSubstr("2 failed\n"));
  ASSERT_EQ(remcaps(sweep({"--shard", "1/2"})).exit_code, 0);
  EXPECT_EQ(statuses().at(0).at("state"), "finished");
  EXPECT_EQ(statuses().at(1).at("state"), "failed");
}

TEST_F(SweepTest, JobsSideBySideMakeTheTableThatOneProcessMakes) {
  const ProgramResult whole = remcaps(sweep({"--runs", "whole"}));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  Program jobs(folder_.path(), sweep({"--jobs", "2"}));
  wait_until(jobs, [&] { return fs::exists(folder_ / "runs/main.plan.json"); });
  Program watcher(folder_.path(), {"status", "runs", "--watch"});
  const ProgramResult result = jobs.wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, whole.out);
  for (const std::string& name : {recipe_, recipe_ + "-rem"}) {
    EXPECT_THAT(result.err, HasSubstr(name + ", seed 42: finished, test accuracy "));
    EXPECT_EQ(read_file(folder_ / "runs" / name / "seed-42/metrics.csv"),
              read_file(folder_ / "whole" / name / "seed-42/metrics.csv"));
  }
  EXPECT_THAT(read_file(folder_ / "runs/jobs/main-1.log"), HasSubstr("epoch 1/1"));
  const ProgramResult watched = watcher.wait();
  EXPECT_EQ(watched.exit_code, 0);
  EXPECT_THAT(watched.out, HasSubstr("\n2 finished\n")) << watched.out;

  // One worker meets a failure, and the others do not try again.
  const ProgramResult failed =
      remcaps(sweep({"--jobs", "2", "--runs", "bad", "--set", "dataset.validation=60000"}));
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr(recipe_ + ", seed 42: failed: "));
  EXPECT_THAT(failed.err, HasSubstr("2 of 2 runs of main could not be made"));
  expect_one_line(remcaps(sweep({"--jobs", "2", "--commands"})), 2, "--jobs");
}

TEST_F(SweepTest, ASignalStopsAllJobsAndTheyGoOn) {
  Program jobs(folder_.path(), sweep({"--jobs", "2"}, /*epochs=*/40));
  const auto state = [&](const std::string& name) {
    return folder_ / "runs" / name / "seed-42/state.safetensors";
  };
  wait_until(jobs,
             [&] { return fs::exists(state(recipe_)) && fs::exists(state(recipe_ + "-rem")); });
  jobs.signal(SIGTERM);
  const ProgramResult stopped = jobs.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  EXPECT_THAT(stopped.err, HasSubstr("the same command goes on with them"));
  for (const json& each : statuses()) EXPECT_EQ(each.at("state"), "stopped");
}

TEST_F(SweepTest, SharesFollowTheVariablesOfASlurmJobArray) {
  const ScopedVariable id("SLURM_ARRAY_TASK_ID", "12"), least("SLURM_ARRAY_TASK_MIN", "10");
  const ScopedVariable most("SLURM_ARRAY_TASK_MAX", "12"), step("SLURM_ARRAY_TASK_STEP", "2");
  {
    const ScopedVariable count("SLURM_ARRAY_TASK_COUNT", "2");
    const std::string second = remcaps(sweep({"--dry-run"})).out;
    EXPECT_THAT(second, HasSubstr("eff-capsnet-rem seed 42"));
    EXPECT_THAT(second, Not(HasSubstr("eff-capsnet seed 42")));
    EXPECT_THAT(remcaps(sweep({"--dry-run", "--shard", "1/1"})).out,
                HasSubstr("eff-capsnet seed 42"));
  }
  const ScopedVariable count("SLURM_ARRAY_TASK_COUNT", "5");
  expect_one_line(remcaps(sweep({"--dry-run"})), 2, "--shard I/N");
  expect_one_line(remcaps(sweep({"--shard", "3/2"})), 2, "expected I/N with I from 1 to N");
}

TEST_F(SweepTest, SubmitGivesSlurmAnArrayAndALastJobThatDependsOnIt) {
  // A stand-in for sbatch; scripts/test-slurm tries the real one.
  write_atomically(folder_ / "sbatch",
                   "#!/bin/sh\necho \"$@\" >> '" + (folder_ / "asked").string() + "'\necho 77\n");
  ::chmod((folder_ / "sbatch").c_str(), 0755);
  const std::string before = std::getenv("PATH");
  const ScopedVariable path("PATH", (folder_.path().string() + ":" + before).c_str());
  const ProgramResult result = remcaps(sweep(
      {"--submit", "slurm", "--gpus", "a100:1", "--time", "4:00:00", "--sbatch=--partition=big"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string runs = (folder_ / "runs").string();
  EXPECT_EQ(read_file(folder_ / "asked"),
            fmt::format("--parsable {0}/slurm/main.sh\n"
                        "--parsable --dependency=afterany:77 {0}/slurm/main-table.sh\n",
                        runs));
  const std::string script = read_file(folder_ / "runs/slurm/main.sh");
  for (const char* part :
       {"#SBATCH --gres=gpu:a100:1\n", "#SBATCH --time=4:00:00\n", "#SBATCH --partition=big\n",
        "#SBATCH --array=1,2\n", "--shard \"$SLURM_ARRAY_TASK_ID/2\"\n",
        "--only fashion-mnist/eff-capsnet --only 'fashion-mnist/eff-capsnet-r*'"})
    EXPECT_THAT(script, HasSubstr(part));
  EXPECT_THAT(read_file(folder_ / "runs/slurm/main-table.sh"), HasSubstr("--shard 1/1\n"));
  for (const json& each : statuses()) EXPECT_EQ(each.at("state"), "waiting");

  // A machine without a GPU submits to one with: unless --device is given, each job chooses its own.
  std::vector<std::string> shown = {"reproduce", "main", "--submit", "slurm", "--dry-run"};
  EXPECT_THAT(remcaps(shown).out, Not(HasSubstr("--device")));
  shown.insert(shown.end(), {"--device", "cuda:1"});
  EXPECT_THAT(remcaps(shown).out, HasSubstr("--device cuda:1"));
  shown.back() = "gpu";
  expect_one_line(remcaps(shown), 2, "--device gpu: expected cpu, cuda or cuda:N");

  fs::remove(folder_ / "asked");
  for (const char* option : {"--time", "--gpus", "--sbatch", "--runs"})
    expect_one_line(remcaps(sweep({"--submit", "slurm", std::string(option) + "=1\nrm x"})), 2,
                    "cannot stand in a job's script");
  EXPECT_FALSE(fs::exists(folder_ / "asked"));

  write_atomically(folder_ / "sbatch", "#!/bin/sh\necho no such partition >&2; exit 1\n");
  expect_one_line(remcaps(sweep({"--submit", "slurm"})), 1, "sbatch failed: no such partition");
}

}  // namespace
}  // namespace remcaps::testing
