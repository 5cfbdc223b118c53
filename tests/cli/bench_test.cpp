// bench: that it runs and what it prints; never how fast.
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::UnorderedElementsAre;

// Needs no data set, unlike the other commands.
class BenchTest : public CliTest {
 protected:
  void SetUp() override {}

  ProgramResult bench(const std::string& task, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"bench", task,        "--model", "eff-capsnet", "--batch",
                                          "4",     "--seconds", "0.01",    "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return remcaps(arguments);
  }

  static std::vector<std::string> phases(const json& result) {
    std::vector<std::string> names;
    for (const auto& [name, milliseconds] : result["phases_ms"].items()) {
      names.push_back(name);
      EXPECT_GE(milliseconds.get<double>(), 0) << name;
    }
    return names;
  }
};

TEST_F(BenchTest, EveryTaskPrintsOneJsonObjectOnEitherPath) {
  for (const char* task : {"train", "infer", "search"})
    for (const char* kernels : {"fused", "reference"}) {
      SCOPED_TRACE(std::string(task) + " " + kernels);
      const ProgramResult result =
          bench(task, {"--json", "--shape", "fashion-mnist", "--kernels", kernels});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const json found = json::parse(result.out);  // exactly one object
      EXPECT_EQ(found["task"], task);
      EXPECT_EQ(found["model"], "eff-capsnet");
      EXPECT_EQ(found["shape"], "fashion-mnist");
      EXPECT_EQ(found["batch"], 4);
      EXPECT_EQ(found["device"], "cpu");
      EXPECT_EQ(found["precision"], "float32");
      EXPECT_EQ(found["kernels"], kernels);
      EXPECT_EQ(found["threads"], 1);
      EXPECT_GE(found["steps"], 1);
      EXPECT_GT(found["images_per_s"], 0.0);
      EXPECT_GT(found["step_ms"], 0.0);
      EXPECT_GT(found["peak_memory_mib"], 0.0);
    }
}

TEST_F(BenchTest, InferTakesATrainedNetwork) {
  const std::vector<std::string> arguments = {
      "bench",    "infer", "--run",     "zoo:fashion-mnist/eff-capsnet-rem",
      "--batch",  "1",     "--seconds", "0.01",
      "--device", "cpu",   "--json"};
  const ProgramResult result = remcaps(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json found = json::parse(result.out);
  EXPECT_EQ(found["model"], "eff-capsnet");
  EXPECT_EQ(found["shape"], "fashion-mnist");
  EXPECT_EQ(found["batch"], 1);

  EXPECT_EQ(bench("infer", {"--run", "zoo:fashion-mnist/eff-capsnet-rem"}).exit_code, 2);
  const ProgramResult neither = remcaps({"bench", "infer", "--seconds", "0.01"});
  EXPECT_EQ(neither.exit_code, 2);
  EXPECT_THAT(neither.err, ::testing::HasSubstr("--model"));
}

TEST_F(BenchTest, PhasesAreThoseOfTheTask) {
  EXPECT_THAT(phases(json::parse(bench("train", {"--json"}).out)),
              UnorderedElementsAre("batch", "forward", "loss", "backward", "update", "sums"));
  EXPECT_THAT(phases(json::parse(bench("infer", {"--json"}).out)),
              UnorderedElementsAre("batch", "forward", "sums"));
  EXPECT_THAT(phases(json::parse(bench("search", {"--json"}).out)),
              UnorderedElementsAre("thresholds", "validation"));
}

TEST_F(BenchTest, TakesTheRecipesKeysAndPrintsForPeople) {
  const ProgramResult result = bench("train", {"--set", "pruning.strategy=lobster"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("images/s"));
  EXPECT_THAT(result.out, ::testing::HasSubstr("peak memory"));
}

TEST_F(BenchTest, ATimelineIsWrittenOrRefusedBeforeAnythingIsMeasured) {
  write_atomically(folder_ / "trace.json", "an older one");
  const ProgramResult result = bench("train", {"--trace", "trace.json"});
  const std::string file = read_file(folder_ / "trace.json");
  if (result.exit_code == 0) {
    EXPECT_THAT(file, ::testing::HasSubstr("traceEvents"));
  } else {
    expect_one_line(result, 2, "trace.json: no trace can be written; this libtorch (");
    EXPECT_EQ(file, "an older one");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json.tmp"));
  std::filesystem::create_directory(folder_ / "taken");
  expect_one_line(bench("train", {"--trace", "taken"}), 1, "taken: a folder");
}

TEST_F(BenchTest, WrongNamesAreOneLineAndExitCodeTwo) {
  expect_one_line(remcaps({"bench", "train", "--model", "eff-capnet"}), 2,
                  "did you mean eff-capsnet?");
  expect_one_line(bench("infer", {"--shape", "mnits"}), 2, "did you mean mnist?");
  expect_one_line(bench("infer", {"--shape", "folder"}), 2, "no fixed shape");
  expect_one_line(bench("infer", {"--kernels", "fast"}), 2, "kernels");
  expect_one_line(bench("train", {"--precision", "bf16"}), 2, "for a GPU");
  expect_one_line(remcaps({"bench", "trian", "--model", "eff-capsnet"}), 2, "train");
}

}  // namespace
}  // namespace remcaps::testing
