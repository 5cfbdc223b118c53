// A folder of pictures, from verify to train, eval and describe, with the real program.
#include "tests/cli/cli_fixture.h"
#include "tests/data/fixtures.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OwnPictures : public CliTest {
 protected:
  void SetUp() override {}  // needs no data set

  // Stripes across, stripes down, and plain pictures, of two sizes. `alike`: every picture is
  // plain.
  void write_pictures(const std::string& name, bool alike) const {
    for (int i = 0; i < 24; ++i) {
      const int64_t side = i % 2 == 0 ? 20 : 28;
      const torch::Tensor stripes = (torch::arange(side).div(4, "floor") % 2 * (100 + 5 * i))
                                        .to(torch::kUInt8)
                                        .expand({1, side, side});
      const torch::Tensor plain = plain_image(1, side, side, 5 * i);
      const std::string file = fmt::format("{}.png", i);
      write_png(folder_ / name / "across" / file, alike ? plain : stripes.transpose(1, 2));
      write_png(folder_ / name / "down" / file, alike ? plain : stripes);
      write_png(folder_ / name / "plain" / file, plain);
    }
  }

  ProgramResult train(const std::string& recipe, const std::string& pictures, int epochs) const {
    return remcaps({"train", recipe, "--folder", pictures, "--epochs", std::to_string(epochs),
                    "--device", "cpu", "--json"});
  }
};

TEST_F(OwnPictures, TrainOnAFolderAndFindItAgain) {
  write_pictures("stripes", /*alike=*/false);
  const ProgramResult trained = train("folder/eff-capsnet", "stripes", 12);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err,
              AllOf(HasSubstr("58 training, 7 validation, 7 test pictures of 3 classes as 1x32x32"),
                    HasSubstr("training changes them by shift 2, flip")));
  const json summary = json::parse(trained.out).at("runs").at(0);
  EXPECT_EQ(summary.at("recipe"), "folder/eff-capsnet");
  EXPECT_GT(summary.at("accuracy"), 0.7) << "three kinds of stripes are easy to tell apart";

  std::filesystem::create_directory(folder_ / "elsewhere");
  const ProgramResult evaluated =
      run_program(folder_ / "elsewhere",
                  {"eval", "../runs/folder/eff-capsnet/seed-42", "--device", "cpu", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(json::parse(evaluated.out).at("accuracy"), summary.at("accuracy"));
}

TEST_F(OwnPictures, NothingIsPrunedBeforeSomethingIsLearnt) {
  write_pictures("alike", /*alike=*/true);
  const ProgramResult trained = train("folder/eff-capsnet-rem", "alike", 1);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_LT(json::parse(trained.out).at("runs").at(0).at("sparsity"), 0.01);
}

TEST_F(OwnPictures, VerifyAndDescribeTakeTheFolder) {
  write_pictures("stripes", /*alike=*/false);
  const ProgramResult fine = remcaps({"data", "verify", "--folder", "stripes", "--json"});
  ASSERT_EQ(fine.exit_code, 0) << fine.err;
  const json reports = json::parse(fine.out).at("datasets");
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].at("name"), "folder");
  EXPECT_EQ(reports[0].at("train"), 72);

  const ProgramResult described =
      remcaps({"describe", "folder/dr-capsnet", "--folder", "stripes", "--json"});
  ASSERT_EQ(described.exit_code, 0) << described.err;
  EXPECT_EQ(json::parse(described.out).at("classes"), 3);
  EXPECT_EQ(json::parse(described.out).at("input"), json({1, 32, 32}));

  truncate_file(folder_ / "stripes" / "down" / "3.png", 40);
  expect_one_line(remcaps({"data", "verify", "--folder", "stripes"}), 1, "down/3.png");
  expect_one_line(remcaps({"train", "folder/eff-capsnet"}), 2, "give --folder DIR");
  expect_one_line(train("folder/eff-capsnet", "nowhere", 1), 1, "nowhere: there is no such folder");
  expect_one_line(remcaps({"data", "verify", "--folder", "nowhere"}), 1,
                  "nowhere: there is no such folder");
}

}  // namespace
}  // namespace remcaps::testing
