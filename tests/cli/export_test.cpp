// export, and networks by their name in the zoo, with the real program.
#include <chrono>
#include <csignal>
#include <thread>

#include "remcaps/base/json.h"
#include "remcaps/tensors/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class ExportTest : public CliTest {
 protected:
  // A network with zeros: SNIP at half sparsity.
  void SetUp() override {
    CliTest::SetUp();
    if (IsSkipped()) return;
    begin_with(kept_, [this] {
      const ProgramResult trained = remcaps(short_training(
          "runs", {"--set", "pruning.strategy=snip", "--set", "pruning.sparsity=0.5"}));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
      const ProgramResult result = remcaps({"export", "runs/seed-42", "--out", file(), "--json"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      numbers_ = json::parse(result.out);
    });
  }
  static std::string file() { return "models/fashion-mnist/small.safetensors"; }

  static inline std::optional<TemporaryFolder> kept_;
  static inline json numbers_;
};

TEST_F(ExportTest, TheZooGivesTheCardsNumbersExactly) {
  const ProgramResult evaluated = remcaps({"eval", "zoo:fashion-mnist/small", "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const json eval = json::parse(evaluated.out);
  for (const char* key : {"model", "dataset", "samples", "accuracy", "loss", "accuracy_quantized",
                          "entropy", "keys_per_class", "parameters_nonzero", "sparsity", "epoch"})
    EXPECT_EQ(eval[key], numbers_[key]) << key;
  EXPECT_NEAR(eval["sparsity"].get<double>(), 0.5, 0.01);

  const std::string card = read_file(folder_ / "models/fashion-mnist/small.md");
  EXPECT_THAT(card, HasSubstr("# fashion-mnist/small\n"));
  EXPECT_THAT(card, HasSubstr("| network | eff-capsnet |"));
  EXPECT_THAT(card, HasSubstr("| licence of the data | MIT |"));
  EXPECT_THAT(card, HasSubstr("| training | 2 epochs in "));
  EXPECT_THAT(card, HasSubstr("remcaps eval zoo:fashion-mnist/small"));
  // Half of the weights in half precision.
  EXPECT_LT(fs::file_size(folder_ / file()),
            fs::file_size(folder_ / "runs/seed-42/last.safetensors") * 4 / 10);
}

TEST_F(ExportTest, ASignalAtAnyTimeLeavesNoOtherFiles) {
  for (int milliseconds = 300; milliseconds <= 900; milliseconds += 100) {
    Program program(folder_.path(), {"export", "runs/seed-42", "--out", "new/small.safetensors",
                                     "--weights", "int8", "--static-routing"});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    program.signal(SIGINT);
    program.wait();
    if (!fs::exists(folder_ / "new")) continue;
    for (const auto& entry : fs::directory_iterator(folder_ / "new"))
      EXPECT_THAT(entry.path().filename().string(),
                  ::testing::AnyOf("small.safetensors", "small.md"));
  }
}

TEST_F(ExportTest, EveryCommandTakesANameOfTheZoo) {
  const std::string name = "zoo:fashion-mnist/small";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"explain", name, "test:0", "--out", "explained"},
           {"entropy", name},
           {"report", name, "runs/seed-42", "--samples", "20", "--out", "report.html"},
           {"figure", "keys", name, "--out", "figures"}}) {
    const ProgramResult result = remcaps(arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments[0] << ": " << result.err;
  }
  // A network of the zoo has no curves; the report names it as it was named.
  EXPECT_THAT(read_file(folder_ / "report.html"),
              HasSubstr(R"("folder":"zoo:fashion-mnist/small")"));
}

TEST_F(ExportTest, ACardOutsideTheZooNamesItsFile) {
  ASSERT_EQ(remcaps({"export", "runs/seed-42", "--out", "mine/one.safetensors", "--data-note",
                     "96 images"})
                .exit_code,
            0);
  const std::string card = read_file(folder_ / "mine/one.md");
  EXPECT_THAT(card, HasSubstr("# one.safetensors\n"));
  EXPECT_THAT(card, HasSubstr("`remcaps eval one.safetensors --device cpu`"));
  EXPECT_THAT(card, HasSubstr("| not the official data | 96 images |"));
  EXPECT_THAT(card, ::testing::Not(HasSubstr("zoo:")));
}

TEST_F(ExportTest, ExportingAnExportChangesNothing) {
  const auto both = [this] {
    return read_file(folder_ / file()) + read_file(folder_ / "models/fashion-mnist/small.md");
  };
  const std::string before = both();
  const ProgramResult again = remcaps({"export", "zoo:fashion-mnist/small", "--out", file()});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(both() == before);
  const ProgramResult measured = remcaps(
      {"export", "zoo:fashion-mnist/small", "--out", file(), "--data", "/usr/share/datasets"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_TRUE(both() == before);
}

TEST_F(ExportTest, AnExportedFileWithoutAGraphGetsOneAndKeepsItsNumbers) {
  const SafetensorsFile written(folder_ / file());
  Metadata metadata = written.metadata();
  ASSERT_EQ(metadata.erase("graph"), 1u);
  json card = json::parse(metadata["card"]);
  card["accuracy"] = 0.125;
  metadata["card"] = json_text(card);
  write_safetensors(folder_ / "old.safetensors", written.tensors(), metadata);
  const ProgramResult again = remcaps({"export", "old.safetensors", "--out", "new.safetensors"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const SafetensorsFile added(folder_ / "new.safetensors");
  metadata["graph"] = written.metadata().at("graph");
  EXPECT_EQ(added.metadata(), metadata);
  EXPECT_EQ(added.names(), written.names());
}

TEST_F(ExportTest, ACompactFileIsForTheRuntime) {
  // Nothing of this network is dead as a whole: the file stays what it is.
  const ProgramResult same =
      remcaps({"export", "zoo:fashion-mnist/small", "--compact", "--out", "same.safetensors"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_TRUE(read_file(folder_ / "same.safetensors") == read_file(folder_ / file()));

  const SafetensorsFile written(folder_ / file());
  Metadata metadata = written.metadata();
  metadata["compact"] = "compact";
  write_safetensors(folder_ / "compact.safetensors", written.tensors(), metadata);
  expect_one_line(remcaps({"eval", "compact.safetensors"}), 1, "export has changed (compact)");
}

TEST_F(ExportTest, NothingHalfWrittenStaysBehind) {
  for (const auto& entry : fs::directory_iterator(folder_ / "models/fashion-mnist"))
    EXPECT_THAT(entry.path().filename().string(),
                ::testing::AnyOf("small.safetensors", "small.md"));
}

TEST_F(ExportTest, AnOnnxFileNeedsNoDataAndNoCard) {
  const ProgramResult written =
      remcaps({"export", "zoo:fashion-mnist/small", "--format", "onnx", "--levels", "11", "--data",
               "nowhere", "--out", "onnx/small.onnx"});
  if (written.err.find("built without libonnx") != std::string::npos)
    GTEST_SKIP() << "built without libonnx";
  ASSERT_EQ(written.exit_code, 0) << written.err;
  for (const auto& entry : fs::directory_iterator(folder_ / "onnx"))
    EXPECT_EQ(entry.path().filename(), "small.onnx");
  expect_one_line(remcaps({"export", "zoo:fashion-mnist/small", "--format", "onnx", "--levels", "1",
                           "--out", "x.onnx"}),
                  1, "1 levels; expected 0, or 2 to 256");
  expect_one_line(
      remcaps({"export", "zoo:fashion-mnist/small", "--levels", "11", "--out", "x.safetensors"}), 2,
      "--levels is for --format onnx");
  expect_one_line(remcaps({"export", "zoo:fashion-mnist/small", "--format", "onnx", "--compact",
                           "--out", "x.onnx"}),
                  2, "are for --format safetensors");
  EXPECT_FALSE(fs::exists(folder_ / "x.onnx"));
}

TEST_F(ExportTest, BadNamesAreOneLine) {
  expect_one_line(remcaps({"eval", "zoo:fashion-mnist/smal"}), 2,
                  "no network zoo:fashion-mnist/smal; did you mean fashion-mnist/small?");
  expect_one_line(remcaps({"export", "runs/seed-42", "--out", "small.bin"}), 2, ".safetensors");
  expect_one_line(remcaps({"export", "runs/seed-43", "--out", "x.safetensors"}), 1, "runs/seed-43");
}

}  // namespace
}  // namespace remcaps::testing
