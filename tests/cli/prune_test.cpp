// prune, with the real program.
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

using PruneTest = CliTest;

TEST_F(PruneTest, TakesCapsulesOutAndWritesAFileWithACard) {
  std::vector<std::string> training = short_training(
      "runs", {"--set", "model.conv_channels=8", "--set", "model.primary_types=2"}, 1);
  training[1] = "fashion-mnist/dr-capsnet";
  const ProgramResult trained = remcaps(training);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProgramResult pruned =
      remcaps({"prune", "runs/seed-42", "--out", "few.safetensors", "--tolerance", "0.5",
               "--epochs", "1", "--least", "30", "--json"});
  ASSERT_EQ(pruned.exit_code, 0) << pruned.err;
  const json numbers = json::parse(pruned.out);
  const json& tries = numbers.at("tries");
  EXPECT_EQ(tries.front().at("capsules"), 72);
  EXPECT_LT(tries.back().at("capsules"), 72);
  EXPECT_LE(tries.back().at("loss").get<double>(), 1.5 * tries.front().at("loss").get<double>());
  EXPECT_EQ(numbers.at("capsules"), 72);
  EXPECT_LE(numbers.at("capsules_left"), tries.back().at("capsules"));
  const std::string card = read_file(folder_ / "few.md");
  EXPECT_THAT(card, HasSubstr("| pruned after training | `remcaps prune --group capsule"));
  EXPECT_THAT(card, HasSubstr("| capsules | 72, "));
  EXPECT_THAT(card, HasSubstr("| effective parts | "));
  const ProgramResult evaluated = remcaps({"eval", "few.safetensors", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(json::parse(evaluated.out).at("accuracy"), numbers.at("accuracy"));
}

}  // namespace
}  // namespace remcaps::testing
