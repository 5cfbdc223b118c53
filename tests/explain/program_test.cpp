// explain and figure with the real program: what a person sees and the exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/explain/picture.h"
#include "tests/cli/program.h"
#include "tests/explain/tiny_run.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ExplainProgram : public ::testing::Test {
 protected:
  ProgramResult remcaps(const std::vector<std::string>& arguments) const {
    return run_program(runs_.folder().path(), arguments);
  }

  void expect_one_line(const std::vector<std::string>& arguments, int exit_code,
                       const std::string& part) const {
    const ProgramResult result = remcaps(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  TinyRuns runs_;
};

TEST_F(ExplainProgram, ExplainsFilesAndImagesOfTheDataSet) {
  write_png(runs_.folder() / "boot.png", torch::randint(0, 256, {30, 24, 3}, torch::kByte));
  const ProgramResult result =
      remcaps({"explain", runs_.on_grid(), "boot.png", "test:2,0..1", "test:2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);  // exactly one object
  ASSERT_EQ(json["explanations"].size(), 5u);
  EXPECT_EQ(json["explanations"][0]["image"], "boot.png");
  EXPECT_FALSE(json["explanations"][0].contains("label"));
  EXPECT_EQ(json["explanations"][1]["image"], "test:2");
  EXPECT_EQ(json["explanations"][3]["image"], "test:1");
  EXPECT_EQ(json["explanations"][3]["label"], "dog");
  EXPECT_EQ(json["explanations"][3]["files"][0], "explained/folder/grid/test-1-overlay.png");
  for (const auto& explanation : json["explanations"])
    for (const auto& file : explanation["files"])
      EXPECT_TRUE(fs::exists(runs_.folder() / file.get<std::string>())) << file;
}

TEST_F(ExplainProgram, PrintsThePredictedClassAndTheQuantizedOneWhereItIsAnother) {
  const std::string run = runs_.layered();
  const auto of = [&](std::vector<std::string> arguments, const char* list) {
    arguments.insert(arguments.end(), {"test:0..8", "--json"});
    const ProgramResult result = remcaps(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out).at(list);
  };
  const auto predicted = of({"predict", run}, "predictions");
  const auto explained = of({"explain", run, "--levels", "2"}, "explanations");
  const ProgramResult printed = remcaps({"explain", run, "test:0..8", "--levels", "2"});
  std::istringstream lines(printed.out);
  size_t different = 0;
  for (size_t i = 0; i < predicted.size(); ++i) {
    EXPECT_EQ(explained[i]["class"], predicted[i]["class"]);
    EXPECT_NEAR(explained[i]["activation"], predicted[i]["activation"].get<double>(), 1e-6);
    const bool same = explained[i]["quantized"]["class"] == explained[i]["class"];
    std::string line, evidence, files;
    std::getline(lines, line);
    std::getline(lines, evidence);
    std::getline(lines, files);
    EXPECT_THAT(evidence, HasSubstr("carry half of what is for it"));
    const auto& parts = explained[i]["evidence"];
    EXPECT_NEAR(parts["total"],
                parts["supporting"].get<double>() - parts["opposing"].get<double>() +
                    parts["bias"].get<double>(),
                1e-9);
    EXPECT_EQ(line.find("; with quantized couplings ") == std::string::npos, same) << line;
    if (!same) ++different;
  }
  EXPECT_GT(different, 0u);
  for (const auto& each : of({"explain", run, "--levels", "0"}, "explanations"))
    EXPECT_EQ(each["class"], each["quantized"]["class"]);
}

TEST_F(ExplainProgram, InvertMakesTheNegativeOfAFile) {
  const Picture light = torch::randint(0, 256, {18, 18, 3}, torch::kByte);
  write_png(runs_.folder() / "light.png", light);
  write_png(runs_.folder() / "dark.png", 255 - light);
  const std::string run = runs_.on_grid();
  for (const std::string command : {"predict", "explain"}) {
    const auto activation = [&](const std::vector<std::string>& words) {
      std::vector<std::string> arguments = {command, run, "--json"};
      arguments.insert(arguments.end(), words.begin(), words.end());
      const ProgramResult result = remcaps(arguments);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return nlohmann::json::parse(result.out)
          .at(command == "predict" ? "predictions" : "explanations")
          .at(0)
          .at("activation")
          .get<double>();
    };
    EXPECT_NEAR(activation({"light.png", "--invert"}), activation({"dark.png"}), 1e-6);
    EXPECT_NE(activation({"light.png"}), activation({"dark.png"}));
    expect_one_line({command, run, "test:0", "--invert"}, 2, "--invert: for files");
  }
}

TEST_F(ExplainProgram, ThePapersViewIsAnOption) {
  const std::string run = runs_.on_grid();
  const fs::path tree = runs_.folder() / "out/test-0-tree.svg";
  ASSERT_EQ(remcaps({"explain", run, "test:0", "--out", "out"}).exit_code, 0);
  EXPECT_THAT(read_file(tree), HasSubstr("edge: share of the evidence"));
  ASSERT_EQ(remcaps({"explain", run, "test:0", "--out", "out", "--view", "couplings", "--stretch"})
                .exit_code,
            0);
  EXPECT_THAT(read_file(tree), HasSubstr("edge: coupling"));
  expect_one_line({"explain", run, "test:0", "--view", "weights"}, 2, "--view");
  expect_one_line({"explain", run, "test:0", "--tree", "--stretch"}, 2, "--stretch");
}

TEST_F(ExplainProgram, SaysWhatTheNetworkCannotShow) {
  const std::string layered = runs_.layered();
  const std::vector<std::string> lines = {
      "no saliency map: its capsules lie on no grid",
      "no perturbed reconstructions: trained without a decoder"};
  const ProgramResult printed = remcaps({"explain", layered, "test:0,1"});
  EXPECT_THAT(printed.out, ::testing::EndsWith(lines[0] + "\n" + lines[1] + "\n"));
  const auto json = nlohmann::json::parse(remcaps({"explain", layered, "test:0,1", "--json"}).out);
  EXPECT_EQ(json["left_out"], lines);
  EXPECT_THAT(remcaps({"explain", layered, "test:0", "--tree"}).out, Not(HasSubstr("no saliency")));
}

TEST_F(ExplainProgram, NamesThatAreNotUtf8AreShownAsFarAsTheyAre) {
  write_png(runs_.folder() / "caf\xe9.png", torch::randint(0, 256, {18, 18, 3}, torch::kByte));
  for (const char* command : {"predict", "explain"}) {
    const ProgramResult result = remcaps({command, runs_.on_grid(), "caf\xe9.png", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json.at(command == std::string("predict") ? "predictions" : "explanations")
                  .at(0)
                  .at("image"),
              "caf\ufffd.png");
  }
}

TEST_F(ExplainProgram, PredictionsDoNotDependOnTheOtherImagesNamed) {
  // gamma-CapsNet's mean distance is one over the batch.
  const std::string gamma =
      runs_.make("gamma",
                 "{name: gamma-capsnet, conv_channels: 4, primary_types: 4, primary_dim: 4, "
                 "conv_kernel: 5, primary_kernel: 5, primary_stride: 3}");
  write_png(runs_.folder() / "boot.png", torch::randint(0, 256, {30, 24, 3}, torch::kByte));
  const auto activations = [&](const std::string& run, std::vector<std::string> images) {
    images.insert(images.begin(), {"predict", run});
    images.insert(images.end(), {"--top", "3", "--json"});
    const ProgramResult result = remcaps(images);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::pair<std::string, double>> found;
    const auto json = nlohmann::json::parse(result.out);
    for (const auto& each : json.at("predictions"))
      for (const auto& guess : each.at("top"))
        found.emplace_back(fmt::format("{} {}", each.at("image").get<std::string>(),
                                       guess.at("class").get<std::string>()),
                           guess.at("activation").get<double>());
    return found;
  };
  for (const std::string& run : {runs_.on_grid(), gamma}) {
    const auto together = activations(run, {"test:0..2", "boot.png"});
    std::vector<std::pair<std::string, double>> apart;
    for (const char* image : {"test:0", "test:1", "test:2", "boot.png"})
      for (const auto& each : activations(run, {image})) apart.push_back(each);
    ASSERT_EQ(together.size(), apart.size());
    for (size_t k = 0; k < apart.size(); ++k) {
      EXPECT_EQ(together[k].first, apart[k].first) << run;
      EXPECT_NEAR(together[k].second, apart[k].second, 1e-6) << run;
    }
  }
}

TEST_F(ExplainProgram, PicturesAreDecodedWhenTheirTurnComes) {
  write_png(runs_.folder() / "good.png", torch::randint(0, 256, {18, 18, 3}, torch::kByte));
  const std::string whole = read_file(runs_.folder() / "good.png");
  write_atomically(runs_.folder() / "cut.png", whole.substr(0, whole.size() / 2));
  std::vector<std::string> arguments = {"predict", runs_.on_grid()};
  arguments.insert(arguments.end(), 200, "good.png");
  arguments.push_back("cut.png");
  const ProgramResult result = remcaps(arguments);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cut.png: damaged PNG image"));
  EXPECT_GT(std::count(result.out.begin(), result.out.end(), '\n'), 0);
}

TEST_F(ExplainProgram, BadInputGetsOneLine) {
  write_atomically(runs_.folder() / "no-image.png", "this is no image");
  const std::string grid = runs_.on_grid(), layered = runs_.layered();
  expect_one_line({"explain", grid, "no-image.png"}, 1, "no-image.png");
  expect_one_line({"explain", grid, "missing.png"}, 1, "missing.png");
  expect_one_line({"explain", grid, "test:9"}, 1, "images 0 to 8");
  expect_one_line({"explain", grid, "tset:1"}, 2, "did you mean test?");
  for (const char* wrong : {"test:5..2", "test:0-1", "test:", "test:-1", "test:1,"})
    expect_one_line(
        {"explain", grid, wrong}, 2,
        fmt::format("{}: expected places and rising ranges of them, as in test:3,7,10..14", wrong));
  expect_one_line({"predict", grid, "c:boot.png"}, 2, "c:boot.png: no such file");
  expect_one_line({"explain", grid, "test:0,1..999999999999"}, 1, "images 0 to 8");
  expect_one_line({"explain", grid, "test:0", "--levels", "1"}, 2, "2 to 256");
  expect_one_line({"explain", grid, "test:0", "--range", "0"}, 2,
                  "--range: 0; expected more than 0");
  expect_one_line({"explain", layered, "test:0", "--layer", "class"}, 1, "no grid");
  expect_one_line({"explain", layered, "test:0", "--saliency"}, 1, "no grid");
  expect_one_line({"explain", layered, "test:0", "--perturb"}, 1, "without a decoder");
  expect_one_line({"explain", layered, "test:0", "--range", "0.1"}, 1, "without a decoder");
  expect_one_line({"explain", grid, "test:0", "--range", "0.1", "--tree"}, 2, "--perturb");
  expect_one_line({"explain", grid, "test:0", "--layer", "class", "--tree"}, 2, "--saliency");
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--threshold", "0.5"}, std::vector<std::string>{"--weak-edges"}}) {
    std::vector<std::string> arguments = {"explain", grid, "test:0", "--saliency"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    expect_one_line(arguments, 2, option[0] + ": without --tree");
  }
  expect_one_line({"figure", "salienzy", grid}, 2, "did you mean saliency?");
  expect_one_line({"figure", "perturbations", layered}, 1, "without a decoder");
  expect_one_line({"figure", "saliency", grid, "--image", "3-4"}, 2, "--image 3-4");
  expect_one_line({"figure", "entropy", "zoo:mnist/any"}, 1, "zoo has no run folder");
}

TEST_F(ExplainProgram, AMisspeltImageStopsItBeforeAnythingIsWritten) {
  expect_one_line({"explain", runs_.on_grid(), "test:0", "missing.png", "--out", "shown"}, 1,
                  "missing.png");
  EXPECT_FALSE(fs::exists(runs_.folder() / "shown"));
}

TEST_F(ExplainProgram, FigureListNamesThemAll) {
  const ProgramResult result = remcaps({"figure", "list"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* name : {"saliency", "parse-trees-classes", "levels", "object-share"})
    EXPECT_THAT(result.out, HasSubstr(name));
}

TEST_F(ExplainProgram, FigurePrintsTheFilesItWrote) {
  const std::string grid = runs_.on_grid();
  const ProgramResult result = remcaps({"figure", "keys", grid, "--out", "drawn"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "drawn/keys.svg\ndrawn/keys.csv\n");
  EXPECT_TRUE(fs::exists(runs_.folder() / "drawn/keys.svg"));
  const ProgramResult some = remcaps({"figure", "saliency", grid, "--image", "8,2..4", "1"});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  const std::string table = read_file(runs_.folder() / "figures/saliency.csv");
  for (int place = 0; place < 9; ++place)
    EXPECT_EQ(table.find(fmt::format(",test:{},", place)) != std::string::npos,
              place == 8 || (place >= 1 && place <= 4))
        << place;
}

}  // namespace
}  // namespace remcaps::testing
