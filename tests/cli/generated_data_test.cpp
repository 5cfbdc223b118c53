// A generated test set is marked wherever a number that was measured on it is shown.
#include "tests/cli/cli_fixture.h"
#include "tests/data/fixtures.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GeneratedData : public CliTest {
 protected:
  void SetUp() override { write_mnist(folder_ / "data" / "mnist", 24, 5); }
};

TEST_F(GeneratedData, IsSaidBesideEveryNumber) {
  constexpr const char* kNote =
      "test images generated from MNIST's by `remcaps data make affnist`, seed 7";
  const ProgramResult made = remcaps({"data", "make", "affnist", "--seed", "7", "--data", "data"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("data/affnist/generated-test.safetensors"));
  EXPECT_THAT(remcaps({"data", "list", "--data", "data"}).out,
              HasSubstr("data/affnist/generated-test.safetensors"));

  std::vector<std::string> training = {"train", "affnist/dr-capsnet", "--data", "data", "--device",
                                       "cpu",   "--epochs",           "1"};
  for (const char* setting :
       {"model.conv_channels=4", "model.primary_types=2", "train.batch=8", "metrics.every=0"})
    training.insert(training.end(), {"--set", setting});
  const ProgramResult trained = remcaps(training);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr(kNote));
  const std::string run = "runs/affnist/dr-capsnet/seed-42";
  const json summary = json::parse(read_file(folder_ / run / "summary.json"));
  EXPECT_EQ(summary.at("data_note"), kNote);
  EXPECT_EQ(summary.at("samples"), 5 * 32);

  EXPECT_THAT(remcaps({"eval", run}).out, HasSubstr(kNote));
  EXPECT_EQ(json::parse(remcaps({"eval", run, "--json"}).out).at("data_note"), kNote);
  const ProgramResult expanded = remcaps({"eval", run, "--split", "expanded-test", "--json"});
  EXPECT_FALSE(json::parse(expanded.out).contains("data_note")) << "these are MNIST's own images";
  EXPECT_THAT(remcaps({"entropy", run}).err, HasSubstr(kNote));

  ASSERT_EQ(remcaps({"collect", "runs", "--out", "results"}).exit_code, 0);
  for (const char* table : {"affnist", "overview"})
    EXPECT_THAT(remcaps({"table", table, "results"}).out, HasSubstr(kNote)) << table;

  ASSERT_EQ(remcaps({"report", run, "--out", "report.html"}).exit_code, 0);
  EXPECT_THAT(read_file(folder_ / "report.html"), HasSubstr(kNote));
  ASSERT_EQ(remcaps({"export", run, "--out", "small.safetensors"}).exit_code, 0);
  EXPECT_THAT(read_file(folder_ / "small.md"),
              HasSubstr(std::string("| not the official data | ") + kNote + " |"));
}

TEST_F(GeneratedData, OnlyWhereTheRecipeIsKnown) {
  expect_one_line(remcaps({"data", "make", "mnist", "--data", "data"}), 1,
                  "mnist: no recipe is known");
  expect_one_line(remcaps({"data", "make", "affnist", "--data", "nowhere"}), 1,
                  "remcaps data fetch mnist");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "nowhere"));
}

}  // namespace
}  // namespace remcaps::testing
