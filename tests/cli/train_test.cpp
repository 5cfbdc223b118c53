// train, resume, eval, predict and describe on real images, with the real program.
#include <png.h>

#include <cmath>

#include "remcaps/ops/convolution.h"
#include "remcaps/torch/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class TrainedRun : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (IsSkipped()) return;
    begin_with(kept_, [this] {
      trained_ = remcaps(short_training("runs-here"));
      ASSERT_EQ(trained_.exit_code, 0) << trained_.err;
    });
    run_ = (folder_ / "runs-here" / "seed-42").string();
  }

  static inline std::optional<TemporaryFolder> kept_;
  static inline ProgramResult trained_;
  std::string run_;
};

TEST_F(TrainedRun, TrainEvalPredictAgree) {
  EXPECT_THAT(trained_.out, HasSubstr("test accuracy"));
  EXPECT_THAT(trained_.err, HasSubstr("epoch 2/2"));
  EXPECT_EQ(trained_.err.find('\r'), std::string::npos) << "no live bar where stderr is a file";

  const ProgramResult evaluated = remcaps({"eval", run_, "--json"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  const json eval = json::parse(evaluated.out);  // exactly one object
  const json summary = json::parse(read_file(fs::path(run_) / "summary.json"));
  EXPECT_EQ(eval["model"], "eff-capsnet");
  EXPECT_EQ(eval["dataset"], "fashion-mnist");
  EXPECT_EQ(eval["split"], "test");
  EXPECT_EQ(eval["samples"], 32);
  EXPECT_EQ(eval["parameters"], 161824);
  EXPECT_LE(eval["parameters_nonzero"].get<int64_t>(), 161824);
  EXPECT_DOUBLE_EQ(eval["accuracy"].get<double>(), summary["accuracy"].get<double>());
  EXPECT_NEAR(eval["loss"].get<double>(), summary["loss"].get<double>(), 1e-6);
  EXPECT_TRUE(eval.contains("sparsity"));
  EXPECT_EQ(eval["confusion"].size(), 10);

  // A weights file stands by itself.
  fs::copy(fs::path(run_) / "best.safetensors", folder_ / "alone.safetensors");
  const ProgramResult alone = remcaps({"eval", "alone.safetensors", "--json"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(json::parse(alone.out)["accuracy"], eval["accuracy"]);

  const ProgramResult table = remcaps({"eval", run_, "--split", "validation"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("accuracy"));
  // Numbers over the columns of the confusion matrix, names with theirs before its rows.
  EXPECT_THAT(table.out,
              HasSubstr("     0     1     2     3     4     5     6     7     8     9\n"));
  EXPECT_THAT(table.out, HasSubstr("Ankle boot = 9 "));
}

TEST_F(TrainedRun, EvalComputesInThePrecisionAskedFor) {
  const auto loss = [this](const std::string& precision) {
    const ProgramResult result = remcaps({"eval", run_, "--json", "--precision", precision});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["loss"].get<double>();
  };
  const json summary = json::parse(read_file(fs::path(run_) / "summary.json"));
  const double expected = summary["loss"];
  EXPECT_NEAR(loss("float32"), expected, 1e-6);
  expect_one_line(remcaps({"eval", run_, "--precision", "tf32"}), 2, "--precision tf32");
  if (cpu_has_bf16_convolution()) {
    EXPECT_NEAR(loss("bf16"), expected, 1e-2 * expected);
    EXPECT_NE(loss("bf16"), loss("float32"));
  } else {
    expect_one_line(remcaps({"eval", run_, "--precision", "bf16"}), 2, "a CPU with AMX");
  }
}

TEST_F(TrainedRun, PredictTakesPicturesOfAnySizeAndColour) {
  for (const auto& [name, format] :
       {std::pair{"grey.png", PNG_FORMAT_GRAY}, {"rgb.png", PNG_FORMAT_RGB}}) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = 50;
    image.height = 31;
    image.format = static_cast<png_uint_32>(format);
    std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image), 90);
    ASSERT_TRUE(
        png_image_write_to_file(&image, (folder_ / name).c_str(), 0, pixels.data(), 0, nullptr));
  }
  const ProgramResult result =
      remcaps({"predict", run_, "grey.png", "rgb.png", "--top", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json predictions = json::parse(result.out)["predictions"];
  ASSERT_EQ(predictions.size(), 2);
  EXPECT_EQ(predictions[0]["image"], "grey.png");
  EXPECT_EQ(predictions[0]["top"].size(), 3);
  EXPECT_EQ(predictions[0]["class"], predictions[1]["class"]);  // grey in grey
  write_atomically(folder_ / "text.png", "not a picture");
  expect_one_line(remcaps({"predict", run_, "text.png"}), 1, "text.png");
}

TEST_F(TrainedRun, PredictTakesImagesOfTheDataSetAndNamesTheirClass) {
  const auto predictions = [&](const std::string& images) {
    const ProgramResult result = remcaps({"predict", run_, images, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["predictions"];
  };
  const json some = predictions("test:2,0..1"), all = predictions("test:0..2");
  EXPECT_EQ(some, json::array({all[2], all[0], all[1]}));
  // A line of text for each, and behind a wrong class the right one.
  int64_t wrong = 0;
  std::string expected;
  for (const json& each : predictions("test:0..31")) {
    const std::string found = each["class"], label = each["label"];
    wrong += found != label;
    expected +=
        fmt::format("{}  {} {:.3f}{}\n", each["image"].get<std::string>(), found,
                    each["activation"].get<double>(), found == label ? "" : ", labelled " + label);
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 32);
  EXPECT_EQ(remcaps({"predict", run_, "test:0..31"}).out, expected);
  expect_one_line(remcaps({"predict", run_, "tset:1"}), 2, "did you mean test?");
}

TEST_F(TrainedRun, SecondRunOfTheSameSeedGetsAFreshFolder) {
  const std::string first = read_file(fs::path(run_) / "last.safetensors");
  const ProgramResult again = remcaps(short_training("runs-here"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_file(fs::path(run_) / "last.safetensors"), first);
  // The same recipe and seed give the same bytes.
  EXPECT_EQ(read_file(folder_ / "runs-here" / "seed-42-2" / "last.safetensors"), first);
}

TEST_F(TrainedRun, FinishedRunCanBeExtended) {
  const ProgramResult done = remcaps({"resume", run_, "--json"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(json::parse(done.out)["epochs"], 2);
  const ProgramResult longer = remcaps({"resume", run_, "--epochs", "3", "--json"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(json::parse(longer.out)["epochs"], 3);
}

TEST_F(TrainedRun, DamagedCheckpointIsOneLine) {
  const fs::path best = fs::path(run_) / "best.safetensors";
  const TensorFile file(best);
  const TensorMap whole = file.load_all();
  const auto save = [&](const std::string& name, TensorMap tensors) {
    save_safetensors(folder_ / name, tensors, file.metadata());
  };
  TensorMap missing = whole, shape = whole, nan = whole;
  missing.erase("class.weight");
  shape["class.weight"] = torch::zeros({3});
  nan["conv1.weight"] = whole.at("conv1.weight").clone().fill_(std::nan(""));
  save("missing.safetensors", missing);
  save("shape.safetensors", shape);
  save("nan.safetensors", nan);
  expect_one_line(remcaps({"eval", "missing.safetensors"}), 1,
                  "class.weight of eff-capsnet is missing");
  expect_one_line(remcaps({"eval", "shape.safetensors"}), 1, "class.weight has shape 3");
  expect_one_line(remcaps({"eval", "nan.safetensors"}), 1, "not finite");
  const std::string bytes = read_file(best);
  write_atomically(folder_ / "short.safetensors", bytes.substr(0, bytes.size() / 2));
  expect_one_line(remcaps({"eval", "short.safetensors"}), 1, "short.safetensors");
  expect_one_line(remcaps({"eval", "nowhere"}), 1, "nowhere: no such run folder or weights file");
}

TEST_F(CliTest, SeveralSeedsInOneCommand) {
  const ProgramResult result =
      remcaps(short_training("many", {"--seeds", "1..2", "--json"}, /*epochs=*/1));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json runs = json::parse(result.out)["runs"];
  ASSERT_EQ(runs.size(), 2);
  EXPECT_EQ(runs[1]["seed"], 2);
  EXPECT_TRUE(fs::exists(folder_ / "many" / "seed-2" / "summary.json"));
}

TEST_F(CliTest, ATooHighLearningRateIsPointedOut) {
  const ProgramResult result = remcaps(
      {"train", "fashion-mnist/dr-capsnet", "--epochs", "1", "--out", "saturated", "--set",
       "train.lr=0.1", "--set", "model.conv_channels=16", "--set", "dataset.limit_train=384",
       "--set", "dataset.validation=64", "--set", "dataset.limit_test=64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("train.lr 0.1 is probably too high"));
}

TEST_F(CliTest, FullDiskIsOneLineAndLeavesNothingHalfWritten) {
  Program::Options options;
  options.file_limit = 300'000;  // less than one file of weights
  const ProgramResult result = remcaps(short_training("full"), options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("state.safetensors"));
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "full")) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    EXPECT_NE(entry.path().extension(), ".safetensors") << entry.path();
  }
}

TEST_F(CliTest, AResultThatCannotBePrintedIsAnError) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"describe", "mnist/dr-capsnet"},
           {"table", "list"},
           {"train", "--help"},
           {"check", "--device", "cpu"}}) {  // prints more than a buffer holds
    const ProgramResult result = remcaps(arguments, {.file_limit = 100});
    EXPECT_EQ(result.exit_code, 1) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("remcaps: stdout: cannot write: "));
  }
}

TEST_F(CliTest, TheFusedKernelsAgreeWithTheirPlainTwins) {
  const ProgramResult result = remcaps({"check", "--device", "cpu", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json findings = json::parse(result.out);
  EXPECT_EQ(findings["failed"], 0);
  EXPECT_THAT(findings.dump(), HasSubstr("convolution: weights' gradient"));
  EXPECT_THAT(findings.dump(), HasSubstr("sparse convolution"));
}

TEST_F(CliTest, DescribeNeedsNoData) {
  const ProgramResult result =
      remcaps({"describe", "mnist/dr-capsnet", "--batch", "128", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json described = json::parse(result.out);
  EXPECT_EQ(described["parameters"], 6804384);
  EXPECT_EQ(described["bytes"]["votes"], int64_t{128} * 1152 * 10 * 16 * 4);
  const ProgramResult table = remcaps({"describe", "smallnorb/eff-capsnet"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("151,664"));
}

TEST_F(CliTest, ABuiltProgramFindsItsCheckoutFromAnyFolder) {
  const fs::path checkout = fs::path(REMCAPS_PROGRAM).parent_path().parent_path().parent_path();
  if (!fs::exists(checkout / "CMakePresets.json")) GTEST_SKIP() << "built outside its checkout";
  recipes_.set(std::nullopt);
  const ProgramResult result = remcaps({"describe", "mnist/dr-capsnet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(CliTest, WrongUsageIsExitCode2WithASuggestion) {
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capnet"}), 2,
                  "did you mean fashion-mnist/eff-capsnet?");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--epoch", "1"}), 2,
                  "did you mean --epochs?");
  expect_one_line(remcaps({"trian"}), 2, "did you mean train?");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--set", "train.lrr=1"}), 2,
                  "did you mean lr?");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--set", "model.primary_dims=8"}),
                  2, "did you mean primary_dim?");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--seeds", "5..1"}), 2,
                  "--seeds 5..1");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--device", "gpu"}), 2,
                  "--device gpu");
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--seed", "1", "--seeds", "1,2"}),
                  2, "--seed");
  expect_one_line(remcaps({"eval"}), 2, "run");
  expect_one_line(remcaps({"juggle"}), 2, "unknown command juggle");
  expect_one_line(remcaps({"data", "juggle"}), 2, "unknown command juggle");
  expect_one_line(remcaps({"data"}), 2, "subcommand is required");
  expect_one_line(remcaps({"predict", "run", "a.png", "--top", "0"}), 2,
                  "--top: 0; expected 1 or more (");
  expect_one_line(remcaps({"eval", "run", "--batch", "many"}), 2,
                  "--batch: many; expected 1 to 65536 (");
  expect_one_line(remcaps({"describe", "mnist/dr-capsnet", "--batch", "9223372036854775807"}), 2,
                  "expected 1 to 65536 (");
  for (const char* side : {"-5", "100000000000"})
    expect_one_line(remcaps({"data", "prepare", "folder", "--folder", ".", "--image-size", side}),
                    2, "expected 0 to 4096 (");
  expect_one_line(remcaps({"resume", "nowhere"}), 1, "nowhere: no such run folder");
}

TEST_F(CliTest, AnOutputThatCannotBeWrittenIsToldBeforeTheData) {
  fs::create_directory(folder_ / "taken.safetensors");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"data", "prepare", "mnist", "--out", "taken.safetensors"},
        {"paste", "taken.safetensors", "--from", "mnist"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--data", "nowhere"});
    expect_one_line(remcaps(arguments), 1, "taken.safetensors: a folder; expected a file to write");
  }
  // The same holds for the place that `prepare` chooses itself. It makes no folder without data.
  fs::create_directories(folder_ / "data/mnist.safetensors");
  expect_one_line(remcaps({"data", "prepare", "mnist", "--data", "data"}), 1,
                  "data/mnist.safetensors: a folder; expected a file to write");
  EXPECT_EQ(remcaps({"data", "prepare", "mnist", "--data", "nowhere"}).exit_code, 1);
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
}

TEST_F(CliTest, EveryCommandsHelpShowsAnExample) {
  for (const char* command : {"train", "resume", "eval", "predict", "describe"}) {
    const ProgramResult help = remcaps({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr(std::string("Example:\n  remcaps ") + command)) << command;
  }
}

}  // namespace
}  // namespace remcaps::testing
