// Terminals that are gone, damaged weights and hostile recipes, given to the real program.
#include <sys/stat.h>

#include <chrono>

#include "remcaps/torch/safetensors.h"
#include "tests/cli/cli_fixture.h"
#include "tests/data/fixtures.h"

namespace remcaps::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Stderr = Program::Options::Stderr;

class LostTerminal : public CliTest {};

TEST_F(LostTerminal, TrainingFinishes) {
  for (const Stderr err : {Stderr::kClosed, Stderr::kFull, Stderr::kBrokenPipe}) {
    const std::string out = fmt::format("runs-{}", static_cast<int>(err));
    const ProgramResult result = remcaps(short_training(out, {}, /*epochs=*/1), {.err = err});
    EXPECT_EQ(result.exit_code, 0) << out;
    EXPECT_THAT(result.out, HasSubstr("test accuracy")) << out;
    const fs::path run = folder_ / out / "seed-42";
    EXPECT_TRUE(fs::exists(run / "summary.json"));
    // No message went into a file of the run that got the number of stderr.
    EXPECT_THAT(read_file(run / "metrics.csv"), Not(HasSubstr("img/s")));
  }
}

TEST_F(LostTerminal, AnErrorKeepsItsExitCode) {
  for (const Stderr err : {Stderr::kClosed, Stderr::kFull}) {
    EXPECT_EQ(remcaps({"eval", "nowhere"}, {.err = err}).exit_code, 1);
    EXPECT_EQ(remcaps({"evil"}, {.err = err}).exit_code, 2);
  }
}

class WrongWeights : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (IsSkipped()) return;
    begin_with(kept_, [this] {
      ASSERT_EQ(remcaps(short_training("runs", {}, /*epochs=*/1)).exit_code, 0);
    });
    write_png(folder_ / "x.png", noise({1, 28, 28}));
    const TensorFile file(best_);
    for (const auto& [name, tensor] : file.load_all()) tensors_[name] = tensor.clone();
    metadata_ = file.metadata();
  }

  void save() { save_safetensors(folder_ / "wrong.safetensors", tensors_, metadata_); }
  ProgramResult predict(const std::string& network) {
    return remcaps({"predict", network, "x.png"});
  }

  static inline std::optional<TemporaryFolder> kept_;
  const fs::path run_ = folder_ / "runs" / "seed-42", best_ = run_ / "best.safetensors";
  TensorMap tensors_;
  Metadata metadata_;
};

TEST_F(WrongWeights, OfAnotherTypeAreRefused) {
  tensors_["conv1.weight"] = tensors_.at("conv1.weight").view(torch::kInt32);
  save();
  expect_one_line(predict("wrong.safetensors"), 1, "conv1.weight is of type Int");
}

TEST_F(WrongWeights, ThatGiveNoFiniteAnswerAreAnErrorAndNotAnAnswer) {
  for (auto& [name, tensor] : tensors_)
    if (tensor.is_floating_point()) tensor.fill_(3e38);
  save();
  expect_one_line(predict("wrong.safetensors"), 1,
                  "wrong.safetensors: the network's answer is not");
  expect_one_line(remcaps({"eval", "wrong.safetensors"}), 1, "wrong.safetensors: the loss on test");
}

TEST_F(WrongWeights, DamagedMetadataAreToldInPlainWords) {
  const auto with = [&](const std::string& key, const std::string& value) {
    const Metadata whole = metadata_;
    metadata_[key] = value;
    save();
    metadata_ = whole;
    return predict("wrong.safetensors");
  };
  expect_one_line(with("epoch", "soon"), 1, "wrong.safetensors: its metadata \"epoch\" is soon");
  expect_one_line(with("epoch", "99999999999999999999"), 1, "expected a number");
  expect_one_line(with("classes", "{}"), 1, "its metadata \"classes\" is {}; expected a list");
  expect_one_line(with("input", "[1, -28, 28]"), 1, "its metadata \"input\" is 1x-28x28");
  expect_one_line(with("recipe", "a: &a [*a]"), 1, "an alias of a value that contains it");
}

TEST_F(WrongWeights, ARecipeThatPromisesMoreThanTheFileHoldsTakesNoMemory) {
  const std::string recipe = metadata_.at("recipe");
  const auto with = [&](const std::string& old, const std::string& text) {
    const size_t at = recipe.find(old);
    EXPECT_LT(at, recipe.size()) << old;
    metadata_["recipe"] = std::string(recipe).replace(at, old.size(), text);
    save();
    return predict("wrong.safetensors");
  };
  expect_one_line(with("[32, 64, 64, 128]", "[60000, 60000, 60000, 60000]"), 1,
                  "numbers; conv1 of its eff-capsnet needs more");
  expect_one_line(with("class_dim: 16", "class_dim: 1024"), 1,
                  "class of its eff-capsnet needs more");
  expect_one_line(with("decoder: none\n  decoder_hidden: [512, 1024]",
                       "decoder: fc\n  decoder_hidden: [1000000, 1000000]"),
                  1, "decoder of its eff-capsnet needs more");
}

TEST_F(WrongWeights, NamesFromFilesCannotSteerTheTerminal) {
  tensors_["\x1b[2Jx\ny"] = torch::zeros({1});
  save();
  expect_one_line(predict("wrong.safetensors"), 1, "\\x1b[2Jx\\ny is no tensor");
  tensors_.erase("\x1b[2Jx\ny");
  json names = json::parse(metadata_.at("classes"));
  for (json& name : names) name = "\x1b[31m" + name.get<std::string>() + "\n";
  metadata_["classes"] = names.dump();
  save();
  const ProgramResult result = predict("wrong.safetensors");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\\x1b[31m"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  const fs::path picture = folder_ / "\x1b[2Jx.png";
  fs::rename(folder_ / "x.png", picture);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"predict", "wrong.safetensors", picture, "--csv"},
                                             {"explain", "wrong.safetensors", picture}}) {
    const ProgramResult shown = remcaps(words);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("\\x1b[2Jx.png")) << words[0];
    EXPECT_THAT(shown.out, Not(HasSubstr("\x1b"))) << words[0];
  }
}

TEST_F(WrongWeights, NamesOfNetworksAndRunsStayTextOnTheTerminalAndInCards) {
  metadata_["name"] = "\x1b[2Jx\n<b>|";
  save();
  const ProgramResult exported =
      remcaps({"export", "wrong.safetensors", "--out", "new.safetensors"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(read_file(folder_ / "new.md"), HasSubstr("| recipe | `\\x1b[2Jx\\n\\<b>\\|`, seed"));

  const fs::path evil = folder_ / "evil" / "\x1b[31mx\ny" / "seed-42";
  fs::create_directories(evil.parent_path());
  fs::copy(run_, evil, fs::copy_options::recursive);
  json summary = json::parse(read_file(evil / "summary.json"));
  summary["recipe"] = "\x1b[2Jx\n<b>|";
  write_atomically(evil / "summary.json", summary.dump());
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"status", "evil"},
           {"collect", "evil", "--out", "results"},
           {"page", "wrong.safetensors", "--data", "/nonexistent"},
           {"report", "wrong.safetensors", "--samples", "4"}}) {
    const ProgramResult shown = remcaps(words);
    EXPECT_EQ(shown.exit_code, 0) << words[0] << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("\\x1b[")) << words[0];
    EXPECT_THAT(shown.out + shown.err, Not(HasSubstr("\x1b"))) << words[0];
  }
}

TEST_F(WrongWeights, ProgressOutsideARunIsRefused) {
  const fs::path state = run_ / "state.safetensors";
  const TensorFile file(state);
  TensorMap tensors;
  for (const auto& [name, tensor] : file.load_all()) tensors[name] = tensor.clone();
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{
           {"epoch", -5}, {"epoch", 1e300}, {"position", 1'000'000}, {"images", 1e15}}) {
    Metadata metadata = file.metadata();
    json progress = json::parse(metadata.at("progress"));
    progress[key] = value;
    if (key == "position") progress["step"] = value;
    metadata["progress"] = progress.dump();
    save_safetensors(folder_ / "state", tensors, metadata);
    fs::copy_file(folder_ / "state", state, fs::copy_options::overwrite_existing);
    expect_one_line(remcaps({"resume", run_.string(), "--epochs", "3"}), 1,
                    "state.safetensors: its progress");
  }
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity()}) {
    TensorMap moments = tensors;
    moments["adam.v.conv1.weight"] = torch::full_like(tensors.at("adam.v.conv1.weight"), wrong);
    save_safetensors(folder_ / "state", moments, file.metadata());
    fs::copy_file(folder_ / "state", state, fs::copy_options::overwrite_existing);
    expect_one_line(remcaps({"resume", run_.string(), "--epochs", "3"}), 1,
                    "state.safetensors: the optimiser's v.conv1.weight has values");
  }
}

TEST_F(WrongWeights, ARunFolderNeedsNoEnvironmentAndNoData) {
  const fs::path info = run_ / "run.json";
  json recorded = json::parse(read_file(info));
  recorded["data"] = "/no/such/folder";
  write_atomically(info, recorded.dump());
  const Program::Options bare = {.empty_environment = true};
  EXPECT_EQ(remcaps({"predict", run_.string(), "x.png"}, bare).exit_code, 0);
  // Fashion-MNIST comes from Debian's package.
  const ProgramResult exported =
      remcaps({"export", run_.string(), "--out", "small.safetensors"}, bare);
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
}

class WrongNumbers : public CliTest {};

TEST_F(WrongNumbers, BeyondAnIntegerAreRefusedAndNotCut) {
  expect_one_line(remcaps({"train", "fashion-mnist/eff-capsnet", "--seed", "99999999999999999999"}),
                  2, "--seed: 99999999999999999999; expected 0 or more");
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

class MemoryLimit : public CliTest {};

TEST_F(MemoryLimit, IsOneLineOrEnough) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs terabytes of addresses";
#else
  int64_t least = 500;  // megabytes with which the program's libraries can start
  while (least < 2000 && remcaps({"--version"}, {.memory_limit = least << 20}).exit_code != 0)
    least += 20;
  int refused = 0;
  for (int64_t more = 10; more <= 250; more += 30) {
    SCOPED_TRACE(more);
    const ProgramResult result =
        remcaps(short_training(fmt::format("runs-{}", more), {}, /*epochs=*/1),
                {.memory_limit = (least + more) << 20});
    if (result.exit_code == 0) continue;
    ++refused;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("not enough memory\n"));
  }
  EXPECT_GT(refused, 0);
#endif
}

class HostileRecipe : public CliTest {
 protected:
  ProgramResult describe(const std::string& recipe) { return remcaps({"describe", recipe}); }
};

TEST_F(HostileRecipe, IsOneLineAtOnce) {
  expect_one_line(remcaps({"describe", "mnist/dr-capsnet", "--set", "train=&a {x: *a}"}), 2,
                  "an alias of a value that contains it");
  write_atomically(folder_ / "zero.yaml", "include: /dev/zero");
  expect_one_line(describe("zero.yaml"), 1, "/dev/zero: a device or a pipe");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  write_atomically(folder_ / "pipe.yaml", "include: pipe");
  expect_one_line(describe("pipe.yaml"), 1, "pipe: a device or a pipe");
  std::string keys = "train:\n";
  for (int i = 0; i < 200'000; ++i) keys += fmt::format("  k{}: 1\n", i);
  write_atomically(folder_ / "keys.yaml", keys);
  expect_one_line(describe("keys.yaml"), 1, "keys.yaml: more than");
  write_atomically(folder_ / "long.yaml", std::string(200'000, 'k') + ": 1");
  const ProgramResult result = describe("long.yaml");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_LT(result.err.size(), 5000u);
}

}  // namespace
}  // namespace remcaps::testing
