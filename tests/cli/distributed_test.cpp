// One run on several processes, over Gloo on the loopback address.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "remcaps/base/version.h"
#include "remcaps/torch/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      ::bind(listener, any, length) == 0 && ::getsockname(listener, any, &length) == 0;
  ::close(listener);
  EXPECT_TRUE(bound);
  return ntohs(address.sin_port);
}

class DistributedTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    const auto features = built_features();
    if (std::find(features.begin(), features.end(), "gloo") == features.end())
      GTEST_SKIP() << "this build has no Gloo";
  }

  /// The processes of a run, as a launcher starts them.
  class Processes {
   public:
    Processes(const fs::path& folder, const Arguments& arguments, int size, int started = -1) {
      const int port = free_port();
      for (int rank = 0; rank < (started < 0 ? size : started); ++rank)
        start(folder, arguments, rank, size, port);
    }

    Program& operator[](size_t rank) { return *programs_[rank]; }
    size_t size() const { return programs_.size(); }
    std::vector<ProgramResult> wait() {
      std::vector<ProgramResult> results;
      for (auto& program : programs_) results.push_back(program->wait());
      return results;
    }

   private:
    void start(const fs::path& folder, const Arguments& arguments, int rank, int size, int port) {
      const ScopedVariable variables[] = {{"RANK", std::to_string(rank)},
                                          {"WORLD_SIZE", std::to_string(size)},
                                          {"LOCAL_RANK", std::to_string(rank)},
                                          {"MASTER_ADDR", "127.0.0.1"},
                                          {"MASTER_PORT", std::to_string(port)}};
      programs_.push_back(std::make_unique<Program>(folder, arguments));
    }
    std::vector<std::unique_ptr<Program>> programs_;
  };

  void train_together(const Arguments& arguments, int size) const {
    Processes processes(folder_.path(), arguments, size);
    for (const ProgramResult& result : processes.wait())
      ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  void train_alone(const Arguments& arguments) const {
    const ProgramResult result = remcaps(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  static Arguments dr_capsnet(const std::string& out, const Arguments& more = {}) {
    Arguments arguments = {"train", "fashion-mnist/dr-capsnet", "--out", out, "--device", "cpu"};
    for (const char* setting :
         {"dataset.limit_train=80", "dataset.limit_test=16", "dataset.validation=32",
          "train.batch=4", "train.lr=1e-4", "train.epochs=1", "metrics.every=0"})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  fs::path run(const std::string& out) const { return folder_ / out / "seed-42"; }

  /// The column of metrics.csv, a value for each epoch.
  std::vector<double> column(const std::string& out, const std::string& name) const {
    std::istringstream text(read_file(run(out) / "metrics.csv"));
    std::vector<double> values;
    size_t wanted = 0;
    for (std::string line; std::getline(text, line);) {
      std::vector<std::string> cells(1);
      for (const char letter : line) {
        if (letter == ',')
          cells.emplace_back();
        else
          cells.back() += letter;
      }
      if (cells[0] == "epoch")
        wanted = std::find(cells.begin(), cells.end(), name) - cells.begin();
      else
        values.push_back(std::stod(cells.at(wanted)));
    }
    return values;
  }

  nlohmann::json summary(const std::string& out) const {
    return nlohmann::json::parse(read_file(run(out) / "summary.json"));
  }

  void expect_near(const std::string& a, const std::string& b, const std::string& name,
                   double tolerance) const {
    const auto first = column(a, name), second = column(b, name);
    ASSERT_EQ(first.size(), second.size());
    for (size_t k = 0; k < first.size(); ++k)
      EXPECT_NEAR(first[k], second[k], tolerance) << name << " of epoch " << k;
  }

  /// Waits until the run has saved a state of at least `step` steps, or its process has ended.
  void wait_for_step(Program& program, const std::string& out, int64_t step) const {
    const auto saved = [&]() -> int64_t {
      if (!fs::exists(run(out) / "state.safetensors")) return -1;
      const SafetensorsFile state(run(out) / "state.safetensors");
      return nlohmann::json::parse(state.metadata().at("progress"))["step"];
    };
    while (program.running() && saved() < step)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void expect_complete(const std::string& out) const {
    EXPECT_TRUE(fs::exists(run(out) / "summary.json"));
  }
};

TEST_F(DistributedTest, TwentyStepsOfDrCapsNetEqualThoseOfOneProcess) {
  train_alone(dr_capsnet("one"));
  for (const int size : {2, 3}) {
    const std::string out = std::to_string(size);
    train_together(dr_capsnet(out), size);
    EXPECT_EQ(column(out, "step"), std::vector<double>{20});
    for (const char* name : {"train_loss", "validation_loss"}) expect_near("one", out, name, 1e-5);
    expect_near("one", out, "train_accuracy", 1e-9);
  }
}

TEST_F(DistributedTest, BatchNormSeesTheWholeBatch) {
  // 97 images: the last batch has one, fewer than there are processes.
  // The plain kernels round less, and small steps keep what they round small.
  const Arguments odd = {"--set", "dataset.limit_train=97", "--set", "kernels=reference",
                         "--set", "train.lr=1e-5"};
  train_alone(short_training("one", odd, /*epochs=*/1));
  train_together(short_training("two", odd, /*epochs=*/1), 2);
  expect_near("one", "two", "train_loss", 1e-5);
  expect_near("one", "two", "validation_loss", 1e-5);
  const TensorFile one(run("one") / "last.safetensors"), two(run("two") / "last.safetensors");
  for (const char* name : {"norm1.running_mean", "norm1.running_var", "norm4.running_var"}) {
    const auto expected = one.load(name), found = two.load(name);
    EXPECT_TRUE(torch::allclose(expected, found, 1e-4, 1e-5)) << name;
  }
}

TEST_F(DistributedTest, SameNumberOfProcessesGivesTheSameBits) {
  for (const char* out : {"a", "b"})
    train_together(short_training(out, {"--set", "pruning.strategy=lobster"}), 2);
  for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
    EXPECT_EQ(read_file(run("a") / name), read_file(run("b") / name)) << name;
}

TEST_F(DistributedTest, SearchAndParseTreesEqualThoseOfOneProcess) {
  // Weights that do not move, and no averages: the same network is searched and measured.
  Arguments still;
  for (const char* setting :
       {"model.norm=none", "train.lr=1e-30", "pruning.strategy=lobster", "pruning.lambda=0",
        "dataset.limit_train=16", "dataset.validation=200", "dataset.limit_test=300"})
    still.insert(still.end(), {"--set", setting});
  train_alone(short_training("one", still, /*epochs=*/1));
  train_together(short_training("two", still, /*epochs=*/1), 2);
  for (const char* name :
       {"validation_loss", "threshold", "evaluations", "loss_before_pruning", "loss_after_pruning",
        "parameters_nonzero", "test_loss", "test_accuracy", "accuracy_quantized", "keys"})
    EXPECT_EQ(column("one", name), column("two", name)) << name;
  expect_near("one", "two", "entropy", 1e-6);
  EXPECT_GT(column("two", "evaluations")[0], 1);
  const auto one = summary("one"), two = summary("two");
  EXPECT_EQ(one["keys_per_class"], two["keys_per_class"]);
  EXPECT_EQ(one["samples_per_class"], two["samples_per_class"]);
  EXPECT_NEAR(one["layers"][0]["t_score"], two["layers"][0]["t_score"], 1e-9);
  EXPECT_NEAR(one["layers"][0]["d_score"], two["layers"][0]["d_score"], 1e-9);
}

TEST_F(DistributedTest, SignalToOneProcessStopsAllAndTheRunGoesOnOnAnyNumber) {
  const auto training = [](const std::string& out) {
    return short_training(out, {"--set", "train.checkpoint_steps=1"});
  };
  train_alone(training("one"));
  for (const int size : {1, 3}) {
    const std::string out = std::to_string(size);
    Processes processes(folder_.path(), training(out), 2);
    wait_for_step(processes[0], out, 3);
    processes[1].signal(SIGTERM);
    for (const ProgramResult& result : processes.wait())
      EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
    EXPECT_FALSE(fs::exists(run(out) / "summary.json"));
    const Arguments resume = {"resume", run(out).string(), "--device", "cpu"};
    size == 1 ? train_alone(resume) : train_together(resume, size);
    expect_complete(out);
    expect_near("one", out, "train_loss", 2e-3);
  }
}

TEST_F(DistributedTest, ProcessesOfDifferentRecipesAreRefused) {
  const int port = free_port();
  const ScopedVariable size("WORLD_SIZE", "2"), at("MASTER_PORT", std::to_string(port));
  ScopedVariable rank("RANK", "0");
  Program first(folder_.path(), short_training("run", {"--timeout", "20"}));
  rank.set("1");
  Program second(folder_.path(), short_training("run", {"--timeout", "20", "--set", "train.lr=1"}));
  const ProgramResult of_second = second.wait();
  EXPECT_EQ(of_second.exit_code, 1);
  EXPECT_THAT(of_second.err, HasSubstr("rank 1 has another recipe"));
  EXPECT_EQ(first.wait().exit_code, 1);
}

TEST_F(DistributedTest, WrongVariablesAreOneLine) {
  struct Case {
    std::optional<std::string> rank, size;
    std::string part;
  };
  for (const Case& each :
       {Case{"0", std::nullopt, "WORLD_SIZE is not set"},
        Case{std::nullopt, "2", "RANK is not set"}, Case{"2", "2", "RANK is 2; expected 0 to 1"},
        Case{"-1", "2", "RANK is -1; expected 0 to 1"},
        Case{"one", "2", "RANK is one; expected 0 to 1"},
        Case{"0", "0", "WORLD_SIZE is 0; expected 1"}}) {
    SCOPED_TRACE(each.part);
    const ScopedVariable rank("RANK", each.rank), size("WORLD_SIZE", each.size);
    expect_one_line(remcaps(short_training("run")), 2, each.part);
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  }
  const ScopedVariable rank("RANK", "7"), size("WORLD_SIZE", "2");
  train_alone(short_training("off", {"--distributed", "off"}, /*epochs=*/1));
}

class LostProcessTest : public DistributedTest {};

TEST_F(LostProcessTest, KilledProcessEndsTheOthersAndTheRunGoesOn) {
  for (const int rank : {0, 1}) {
    for (const int64_t step : {0, 2, 8}) {
      const std::string out = std::to_string(rank) + "-" + std::to_string(step);
      SCOPED_TRACE(out);
      Processes processes(folder_.path(),
                          short_training(out, {"--set", "train.checkpoint_steps=1", "--set",
                                               "pruning.strategy=lobster", "--timeout", "20"}),
                          2);
      wait_for_step(processes[0], out, step);
      processes[rank].signal(SIGKILL);
      const auto results = processes.wait();
      const ProgramResult& other = results[1 - rank];
      EXPECT_EQ(other.exit_code, 1);
      EXPECT_THAT(other.err, HasSubstr("rank " + std::to_string(rank) + " of 2 is gone"));
      EXPECT_THAT(other.err, HasSubstr("go on with: remcaps resume"));
      train_alone({"resume", run(out).string(), "--device", "cpu"});
      expect_complete(out);
    }
  }
}

TEST_F(LostProcessTest, TheOthersNameTheOneOfThreeThatIsGone) {
  Processes processes(folder_.path(), short_training("run", {"--timeout", "20"}, /*epochs=*/50), 3);
  wait_for_step(processes[0], "run", 0);
  processes[2].signal(SIGKILL);
  const auto results = processes.wait();
  for (const size_t rank : {0, 1}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(results[rank].err, HasSubstr("rank 2 of 3 is gone"));
  }
}

TEST_F(LostProcessTest, ProcessThatHangsIsGivenUp) {
  for (const size_t rank : {0, 1}) {
    const std::string out = std::to_string(rank);
    Processes processes(folder_.path(), short_training(out, {"--timeout", "3"}, /*epochs=*/50), 2);
    wait_for_step(processes[0], out, 0);
    processes[rank].signal(SIGSTOP);
    const ProgramResult other = processes[1 - rank].wait();
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_THAT(other.err, HasSubstr("rank " + out + " of 2 is gone"));
    processes[rank].signal(SIGKILL);
  }
}

TEST_F(LostProcessTest, ProcessThatNeverComesIsNamed) {
  const Arguments training = short_training("run", {"--timeout", "2"});
  Processes alone(folder_.path(), training, /*size=*/3, /*started=*/1);
  expect_one_line(alone.wait()[0], 1, "ranks 1 and 2 of 3 did not come (waited 2 s)");
  const ScopedVariable rank("RANK", "1"), size("WORLD_SIZE", "2"),
      port("MASTER_PORT", std::to_string(free_port()));
  expect_one_line(remcaps(training), 1, "rank 0 of 2 does not answer at 127.0.0.1");
}

}  // namespace
}  // namespace remcaps::testing
