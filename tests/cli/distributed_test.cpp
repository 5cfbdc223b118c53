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
  EXPECT_EQ(column("one", "entropy"), column("two", "entropy"));
  EXPECT_GT(column("two", "evaluations")[0], 1);
  const auto one = summary("one"), two = summary("two");
  for (const char* key : {"keys_per_class", "samples_per_class", "layers", "effective_parts"})
    EXPECT_EQ(one[key], two[key]) << key;
}

TEST_F(DistributedTest, MeasurementsPrintWhatOneProcessPrints) {
  train_alone(short_training("run", {"--set", "dataset.limit_test=36"}, /*epochs=*/1));
  const std::string trained = run("run").string();
  for (const Arguments& command :
       {Arguments{"eval", trained, "--json"},
        Arguments{"entropy", trained, "--levels", "21", "--trees", "9", "--save", "trees"},
        Arguments{"levels", trained, "--split", "test", "--candidates", "2,11,101", "--json"},
        Arguments{"couplings", trained, "--all", "--out", "couplings", "--json"}}) {
    SCOPED_TRACE(command[0]);
    Arguments arguments = command;  // five batches of at most eight images
    arguments.insert(arguments.end(), {"--batch", "8", "--device", "cpu"});
    const auto files = [&] {
      std::string bytes;
      for (const char* name : {"trees", "couplings"})
        if (fs::exists(folder_ / name)) bytes += read_file(folder_ / name);
      return bytes;
    };
    const auto forget = [&] {
      for (const char* name : {"trees", "couplings"}) fs::remove(folder_ / name);
    };
    const ProgramResult alone = remcaps(arguments);
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const std::string expected = files();
    forget();
    Processes processes(folder_.path(), arguments, 3);
    const auto results = processes.wait();
    for (const ProgramResult& result : results) ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(results[0].out, alone.out);
    EXPECT_EQ(files(), expected);
    forget();
    for (size_t rank = 1; rank < results.size(); ++rank)
      EXPECT_EQ(results[rank].out + results[rank].err, "");
  }
}

TEST_F(DistributedTest, RoutingThatTakesAMeanOverTheBatchSeesTheWholeBatch) {
  const auto gamma = [](const std::string& out) {
    Arguments arguments = dr_capsnet(out, {"--set", "dataset.limit_train=12"});
    arguments[1] = "fashion-mnist/gamma-capsnet";
    return arguments;
  };
  train_alone(gamma("one"));
  train_together(gamma("two"), 2);
  for (const char* name : {"train_loss", "validation_loss"}) expect_near("one", "two", name, 1e-5);
}

TEST_F(DistributedTest, AGroupOfOneProcessGivesTheBitsOfNone) {
  const Arguments rem = {"--set", "pruning.strategy=lobster"};
  train_alone(short_training("none", rem));
  const ScopedVariable rank("RANK", "0"), size("WORLD_SIZE", "1"),
      port("MASTER_PORT", std::to_string(free_port()));
  Arguments on = rem;
  on.insert(on.end(), {"--distributed", "on"});
  train_alone(short_training("one", on));
  for (const char* name : {"best.safetensors", "last.safetensors", "metrics.csv"})
    EXPECT_EQ(read_file(run("none") / name), read_file(run("one") / name)) << name;
}

TEST_F(DistributedTest, AGroupThatIsAskedForNeedsALauncher) {
  expect_one_line(remcaps(short_training("run", {"--distributed", "on"})), 2,
                  "no launcher started this process");
}

TEST_F(DistributedTest, WorkersThatAreGroupsTrainARunOnce) {
  const Arguments once =
      short_training("run", {"--once", "--set", "train.checkpoint_steps=1", "--timeout", "20"});
  Processes first(folder_.path(), once, 2);
  wait_for_step(first[0], "run", 2);
  first[0].signal(SIGTERM);
  for (const ProgramResult& result : first.wait()) EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  train_together(once, 2);  // goes on with it
  expect_complete("run");
  EXPECT_FALSE(fs::exists(folder_ / "run" / "seed-42-2"));
  Processes third(folder_.path(), once, 2);
  const auto results = third.wait();
  for (const ProgramResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(results[0].err, HasSubstr("skipped: it is finished"));
  EXPECT_EQ(results[1].err, "");
}

// Debian's torchrun is broken (it needs an older Python).
TEST_F(DistributedTest, TorchrunStartsARun) {
  const std::string torchrun =
      "torchrun --no_python --nproc_per_node 2 --master_port " + std::to_string(free_port()) + " ";
  const auto shell = [&](const std::string& command) {
    return std::system(
        fmt::format("cd '{}' && {}{} > out 2> err", folder_.path().string(), torchrun, command)
            .c_str());
  };
  if (shell("true") != 0) GTEST_SKIP() << "there is no torchrun that works";
  std::string line = REMCAPS_PROGRAM;
  for (const std::string& word : short_training("run")) line += " " + word;
  EXPECT_EQ(shell(line), 0) << read_file(folder_ / "err");
  EXPECT_THAT(read_file(folder_ / "err"), HasSubstr("2 processes on cpu"));
  expect_complete("run");
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

TEST_F(LostProcessTest, TheOthersNameTheOneOfThreeThatIsGoneAndTwoGoOn) {
  for (const auto& [killed, step] : {std::pair<size_t, int64_t>{0, 7}, {1, 3}, {2, 0}}) {
    const std::string out = std::to_string(killed);
    SCOPED_TRACE(out);
    Processes processes(folder_.path(),
                        short_training(out, {"--set", "train.checkpoint_steps=1", "--set",
                                             "pruning.strategy=lobster", "--timeout", "20"}),
                        3);
    wait_for_step(processes[0], out, step);
    processes[killed].signal(SIGKILL);
    const auto results = processes.wait();
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(results[rank].exit_code, 1);
      EXPECT_THAT(results[rank].err, HasSubstr("rank " + out + " of 3 is gone"));
    }
    train_together({"resume", run(out).string(), "--device", "cpu"}, 2);
    expect_complete(out);
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
