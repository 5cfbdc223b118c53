#include "tests/cli/cli_fixture.h"

#include <map>

#include "remcaps/torch/safetensors.h"

namespace remcaps {
namespace {

using nlohmann::json;
using testing::CliTest;
using ::testing::HasSubstr;

// Twelve steps of REM, enough for a run folder with everything in it.
class RemCommands : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (IsSkipped()) return;
    begin_with(kept_, [this] {
      auto arguments = short_training("runs/fashion-mnist/eff-capsnet-rem", {}, 1);
      arguments[1] = "fashion-mnist/eff-capsnet-rem";
      const auto trained = remcaps(arguments);
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
      EXPECT_THAT(trained.err, ::testing::ContainsRegex("epoch 1/1 .* search [0-9]+ passes  "));
    });
  }
  json object(const std::vector<std::string>& arguments) const {
    const auto result = remcaps(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  static inline std::optional<testing::TemporaryFolder> kept_;
  const std::string run_ = "runs/fashion-mnist/eff-capsnet-rem/seed-42";
};

TEST_F(RemCommands, EntropyOfEvalEntropyCouplingsAndDictionaryAgree) {
  const json eval = object({"eval", run_, "--device", "cpu", "--json"});
  const json entropy = object(
      {"entropy", run_, "--device", "cpu", "--json", "--save", "new/dictionary.safetensors"});
  for (const char* key :
       {"accuracy", "accuracy_quantized", "levels", "entropy", "entropy_per_class",
        "keys_per_class", "varying_per_class", "samples_per_class", "sparsity"})
    EXPECT_EQ(eval.at(key), entropy.at(key)) << key;

  expect_one_line(remcaps({"couplings", run_, "--device", "cpu", "--out", "runs"}), 1,
                  "runs: a folder; expected a file to write");
  object({"couplings", run_, "--device", "cpu", "--out", "couplings.safetensors", "--json"});
  const TensorFile file(folder_ / "couplings.safetensors");
  const torch::Tensor levels = file.load("levels"), predictions = file.load("predictions");
  std::map<int64_t, std::map<std::vector<uint8_t>, int64_t>> dictionary;
  for (int64_t row = 0; row < levels.size(0); ++row) {
    const auto* begin = levels[row].data_ptr<uint8_t>();
    ++dictionary[predictions[row].item<int64_t>()][{begin, begin + levels.size(1)}];
  }
  for (const auto& [j, keys] : dictionary) {
    EXPECT_EQ(entropy.at("keys_per_class").at(j), keys.size());
    int64_t varying = 0;
    for (int64_t i = 0; i < levels.size(1); ++i)
      varying += std::any_of(keys.begin(), keys.end(), [&, first = keys.begin()->first](auto& key) {
        return key.first[i] != first[i];
      });
    EXPECT_EQ(entropy.at("varying_per_class").at(j), varying);
    double bits = 0, total = entropy.at("samples_per_class").at(j);
    for (const auto& [key, count] : keys)
      bits -= static_cast<double>(count) / total * std::log2(static_cast<double>(count) / total);
    EXPECT_NEAR(entropy.at("entropy_per_class").at(j), bits, 1e-9);
  }
  const double right = predictions.eq(file.load("labels")).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(entropy.at("accuracy_quantized"), right, 1e-9);

  const TensorFile saved(folder_ / "new/dictionary.safetensors");
  EXPECT_EQ(saved.load("counts").sum().item<int64_t>(), levels.size(0));
}

TEST_F(RemCommands, OtherLevelsTheCurveAndTheTableOfARun) {
  const json levels = object({"levels", run_, "--device", "cpu", "--json", "--candidates", "2,21"});
  ASSERT_EQ(levels.at("curves").size(), 1u);
  EXPECT_EQ(levels.at("curves").at(0).at("points").size(), 2u);
  const json two = object({"entropy", run_, "--device", "cpu", "--json", "--levels", "2"});
  EXPECT_EQ(two.at("levels").at(0), 2);
  const auto table = remcaps({"table", "main", "runs"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("fashion-mnist/eff-capsnet-rem  42     1  "));
}

class WrongRemArguments : public CliTest {};

TEST_F(WrongRemArguments, AreExplainedInOneLine) {
  expect_one_line(remcaps({"entropy", "run", "--device", "cpu", "--levels", "eleven"}), 2,
                  "eleven");
  expect_one_line(remcaps({"couplings", "run", "--out", "x", "--levels", "1"}), 2, "2 to 256");
  expect_one_line(remcaps({"entropy", "nowhere", "--device", "cpu"}), 1, "nowhere");
  expect_one_line(remcaps({"couplings", "run", "--out", "x", "--levels", "auto"}), 2,
                  "auto is no number of levels; expected 2 to 256");
  for (const char* wrong : {"11,", ",11", "11,,6"})
    expect_one_line(remcaps({"entropy", "run", "--device", "cpu", "--levels", wrong}), 2,
                    fmt::format("--levels {}: \"\" is no number of levels", wrong));
  expect_one_line(remcaps({"table", "minst"}), 2, "did you mean mnist?");
  expect_one_line(remcaps({"reproduce", "mian"}), 2, "did you mean main?");
}

TEST_F(RemCommands, PruneNeedsDynamicRouting) {
  expect_one_line(remcaps({"prune", run_, "--out", "few.safetensors"}), 2,
                  "eff-capsnet: whole capsules can be taken out of class layers with dynamic");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "few.safetensors"));
}

}  // namespace
}  // namespace remcaps
