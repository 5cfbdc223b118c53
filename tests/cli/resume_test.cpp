// Runs that are killed or interrupted go on as if nothing had happened.
#include <signal.h>

#include <chrono>
#include <thread>

#include "remcaps/tensors/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ResumeTest : public CliTest {
 protected:
  /// In the folder `whole`: the run that was not disturbed.
  void train_whole() {
    begin_with(kept_, [this] {
      const ProgramResult whole = remcaps(training("whole"));
      ASSERT_EQ(whole.exit_code, 0) << whole.err;
    });
  }

  static std::vector<std::string> training(const std::string& out) {
    return short_training(
        out, {"--set", "train.checkpoint_steps=2", "--set", "pruning.strategy=lobster"});
  }

  fs::path run(const std::string& out) const { return folder_ / out / "seed-42"; }

  /// Steps the run's checkpoint has done; -1 before there is one.
  int64_t saved_step(const std::string& out) const {
    if (!fs::exists(run(out) / "state.safetensors")) return -1;
    const SafetensorsFile state(run(out) / "state.safetensors");
    return nlohmann::json::parse(state.metadata().at("progress"))["step"];
  }

  /// Waits until the program has saved a state of at least `step` steps, or has ended.
  void wait_for_step(Program& program, const std::string& out, int64_t step) const {
    while (program.running() && saved_step(out) < step)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void expect_same_run(const std::string& a, const std::string& b) const {
    for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
      EXPECT_EQ(read_file(run(a) / name), read_file(run(b) / name)) << name;
  }

  static inline std::optional<TemporaryFolder> kept_;
};

TEST_F(ResumeTest, KilledRunResumesBitForBit) {
  ASSERT_NO_FATAL_FAILURE(train_whole());
  // Before the first step, within the first epoch, within the second.
  for (const int64_t step : {0, 2, 8}) {
    SCOPED_TRACE(step);
    const std::string out = "killed-" + std::to_string(step);
    {
      Program program(folder_.path(), training(out));
      wait_for_step(program, out, step);
      program.signal(SIGKILL);
      ASSERT_EQ(program.wait().exit_code, 128 + SIGKILL);
    }
    const ProgramResult resumed = remcaps({"resume", run(out).string(), "--device", "cpu"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_same_run("whole", out);
  }
}

TEST_F(ResumeTest, InterruptedRunSavesSaysHowToResumeAndResumesBitForBit) {
  ASSERT_NO_FATAL_FAILURE(train_whole());
  Program program(folder_.path(), training("part"));
  wait_for_step(program, "part", 0);
  program.signal(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopping;"));
  EXPECT_THAT(result.err, HasSubstr("remcaps resume part/seed-42"));
  const ProgramResult resumed = remcaps({"resume", "part/seed-42", "--device", "cpu"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "part");
}

TEST_F(ResumeTest, ASignalDuringTheLastEvaluationKeepsTheNextSeedFromBeginning) {
  Program program(folder_.path(),
                  short_training("seeds", {"--seeds", "42..44", "--set", "dataset.limit_test=512"},
                                 /*epochs=*/1));
  while (program.running() && !fs::exists(run("seeds") / "last.safetensors"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  program.signal(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_FALSE(fs::exists(folder_ / "seeds" / "seed-44"));
}

TEST_F(ResumeTest, FolderInUseIsRefused) {
  Program program(folder_.path(), short_training("used", {}, /*epochs=*/1000));
  wait_for_step(program, "used", 0);
  expect_one_line(remcaps({"resume", "used/seed-42"}), 1, "another process is training");
  program.signal(SIGKILL);
}

}  // namespace
}  // namespace remcaps::testing
