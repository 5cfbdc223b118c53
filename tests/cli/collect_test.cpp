// collect, and table on what it collected, with the real program.
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CollectTest : public CliTest {
 protected:
  void train(const std::vector<std::string>& more = {}) const {
    const ProgramResult trained = remcaps(short_training("runs", more));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  json collected() const {
    return json::parse(read_file(folder_ / "results/fashion-mnist/eff-capsnet/seed-42.json"));
  }
};

TEST_F(CollectTest, KeepsWhatATableNeedsAndSaysWhatWasChanged) {
  train({"--set", "train.lr=0.002"});
  const ProgramResult result = remcaps({"collect", "runs", "--data-note", "96 images"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "results/fashion-mnist/eff-capsnet/seed-42.json\n");
  const json summary = collected();
  EXPECT_EQ(summary["changed"]["train.lr"], "0.002");
  EXPECT_EQ(summary["changed"]["dataset.limit_train"], "96");
  EXPECT_FALSE(summary["changed"].contains("metrics.every")) << "it decides no number";
  EXPECT_FALSE(summary["changed"].contains("train.patience")) << "it is the recipe's";
  EXPECT_EQ(summary["options"]["train.patience"], "200");
  EXPECT_EQ(summary["data_note"], "96 images");
  EXPECT_THAT(summary["machine"].get<std::string>(), HasSubstr("CPU"));
  EXPECT_FALSE(summary.contains("run")) << "a path on one machine";
  for (const char* key : {"accuracy", "keys_per_class", "seconds", "commit", "stopped"})
    EXPECT_TRUE(summary.contains(key)) << key;

  // The table takes the summary for the run, and shows only what there is.
  const ProgramResult table =
      remcaps({"table", "main", "results", "--done", "--format", "markdown"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("| F-MNIST | Eff-CapsNet | ours, dataset.limit_test=32, "));
  EXPECT_THAT(table.out, Not(HasSubstr("DR-CapsNet")));
  EXPECT_THAT(table.out, HasSubstr("ended after 2 epochs as told"));
  EXPECT_THAT(table.out, HasSubstr("train.lr=0.002"));
  EXPECT_THAT(table.out, HasSubstr("96 images"));
  const auto numbers = [this](const std::string& from) {
    return remcaps({"table", "main", from, "--format", "csv"}).out;
  };
  EXPECT_EQ(numbers("results"), numbers("runs"));
  EXPECT_EQ(numbers("results/fashion-mnist/eff-capsnet/seed-42.json"), numbers("runs"));
}

TEST_F(CollectTest, ADeepSummaryIsRefused) {
  constexpr size_t kDeep = 1'000'000;
  make_folder(folder_ / "runs/seed-42");
  write_atomically(folder_ / "runs/seed-42/summary.json",
                   R"({"recipe": "fashion-mnist/eff-capsnet", "seed": 42, "x": )" +
                       std::string(kDeep, '[') + std::string(kDeep, ']') + "}");
  expect_one_line(remcaps({"collect", "runs"}), 1, "more than 32 levels");
  expect_one_line(remcaps({"table", "overview", "runs"}), 1, "more than 32 levels");
}

TEST_F(CollectTest, TheCommandLineCompletesOlderSummaries) {
  train();
  // As an older version wrote it: without machine, commit and options.
  const auto file = folder_ / "runs/seed-42/summary.json";
  json summary = json::parse(read_file(file));
  for (const char* key : {"machine", "commit", "options"}) summary.erase(key);
  write_atomically(file, summary.dump());
  const ProgramResult result =
      remcaps({"collect", "runs/seed-42", "--machine", "NVIDIA H200", "--commit", "c35d514"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(collected()["machine"], "NVIDIA H200");
  EXPECT_EQ(collected()["commit"], "c35d514");
  EXPECT_EQ(collected()["options"]["train.batch"], "16");
}

TEST_F(CollectTest, WritesNowhereButBelowItsFolder) {
  for (const std::string& name : {std::string("../evil"), std::string("a/../../evil"),
                                  (folder_ / "evil").string(), std::string()}) {
    const json summary = {{"recipe", name}, {"seed", 1}, {"options", json::object()}};
    write_atomically(folder_ / "seed-1.json", summary.dump());
    expect_one_line(remcaps({"collect", "seed-1.json", "--out", "results/here"}), 1,
                    "seed-1.json: its recipe is \"" + name + "\"; expected a name such as");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "results")) << name;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "evil")) << name;
  }
}

TEST_F(CollectTest, BadPathsAreOneLine) {
  std::filesystem::create_directory(folder_ / "empty");
  expect_one_line(remcaps({"collect", "empty"}), 1, "empty: no finished run there");
  expect_one_line(remcaps({"collect", "nowhere"}), 1, "nowhere: no such summary");
  expect_one_line(remcaps({"table", "main", "nowhere"}), 1, "nowhere: no such summary");
}

}  // namespace
}  // namespace remcaps::testing
