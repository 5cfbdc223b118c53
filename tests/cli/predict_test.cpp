// predict and zoo list with the networks of the checkout, and how the program uses threads.
#include "tests/cli/cli_fixture.h"
#include "tests/data/fixtures.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ZooTest : public CliTest {
 protected:
  void SetUp() override {}  // needs no data set
  const ScopedVariable models_ = {"REMCAPS_MODELS", REMCAPS_SOURCE_MODELS};
};

class PredictTest : public ZooTest {
 protected:
  void SetUp() override {
    write_png(folder_ / "pictures/b.png", plain_image(1, 20, 30, 200));
    write_png(folder_ / "pictures/a, b.png", plain_image(1, 28, 28, 10));
    write_png(folder_ / "pictures/deep/c.png", plain_image(3, 28, 28, 90));
    write_atomically(folder_ / "pictures/notes.txt", "no picture");
    write_png(folder_ / "broken/header.png", plain_image(1, 28, 28, 1));
    truncate_file(folder_ / "broken/header.png", 6);
    write_png(folder_ / "broken/pixels.png", plain_image(1, 28, 28, 1));
    truncate_file(folder_ / "broken/pixels.png", fs::file_size(folder_ / "broken/pixels.png") - 20);
  }

  ProgramResult predict(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"predict", "zoo:fashion-mnist/eff-capsnet", "--device",
                                          "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return remcaps(arguments);
  }

  static std::vector<std::string> names(const json& predictions) {
    std::vector<std::string> result;
    for (const json& each : predictions) result.push_back(each["image"]);
    return result;
  }
};

TEST_F(PredictTest, TakesFoldersWithTheirSubFolders) {
  const ProgramResult result = predict({"pictures", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json found = json::parse(result.out);
  EXPECT_THAT(names(found["predictions"]),
              ::testing::ElementsAre("pictures/a, b.png", "pictures/b.png", "pictures/deep/c.png"));
  // A picture's class does not depend on its neighbours.
  const json alone = json::parse(predict({"pictures/deep/c.png", "--json"}).out);
  EXPECT_EQ(alone["predictions"][0], found["predictions"][2]);

  fs::create_directory(folder_ / "empty");
  expect_one_line(predict({"empty"}), 1, "empty: no PNG or JPEG files");
}

TEST_F(PredictTest, GoesOnAfterFilesItCannotRead) {
  const ProgramResult result =
      predict({"broken", "nowhere.png", "pictures/notes.txt", "pictures", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const json found = json::parse(result.out);
  EXPECT_EQ(found["predictions"].size(), 3u);
  EXPECT_THAT(names(found["unreadable"]),
              ::testing::UnorderedElementsAre("broken/header.png", "broken/pixels.png",
                                              "nowhere.png", "pictures/notes.txt"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("remcaps: broken/pixels.png: "),
                                HasSubstr("remcaps: 4 of 7 images cannot be read\n")));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 5) << result.err;

  expect_one_line(predict({"nowhere.png"}), 1, "nowhere.png");
  expect_one_line(predict({"broken/pixels.png", "--csv"}), 1, "broken/pixels.png");
}

TEST_F(PredictTest, WritesCsv) {
  const ProgramResult result = predict({"pictures", "--csv", "--top", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("image,label,class,activation,class_2,activation_2\n"),
                    HasSubstr("\n\"pictures/a, b.png\",,"), HasSubstr("\npictures/deep/c.png,,")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4);
  EXPECT_EQ(predict({"pictures", "--csv", "--json"}).exit_code, 2);
}

TEST_F(ZooTest, ListShowsTheNumbersOfTheFiles) {
  const ProgramResult listed = remcaps({"zoo", "list", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const json networks = json::parse(listed.out)["networks"];
  const auto found = std::find_if(networks.begin(), networks.end(), [](const json& network) {
    return network["name"] == "zoo:fashion-mnist/dr-capsnet-rem";
  });
  ASSERT_NE(found, networks.end());
  const fs::path file =
      fs::path(REMCAPS_SOURCE_MODELS) / "fashion-mnist/dr-capsnet-rem.safetensors";
  EXPECT_EQ((*found)["bytes"], fs::file_size(file));

  // The card beside the file says the same.
  const std::string card = read_file(fs::path(file).replace_extension(".md"));
  EXPECT_THAT(card,
              HasSubstr(fmt::format("| {:.2f} % of", 100 * (*found)["accuracy"].get<double>())));
  EXPECT_THAT(card, HasSubstr(fmt::format("| {:.2f} %, K",
                                          100 * (*found)["accuracy_quantized"].get<double>())));
  EXPECT_THAT(card, HasSubstr(fmt::format("| {:.2f} ±", (*found)["entropy"].get<double>())));
  EXPECT_THAT(card, HasSubstr(fmt::format("| sparsity | {:.2f} %",
                                          100 * (*found)["sparsity"].get<double>())));

  const ProgramResult text = remcaps({"zoo", "list"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 1 + networks.size());
  EXPECT_THAT(text.out,
              HasSubstr(fmt::format("{:.2f} %", 100 * (*found)["accuracy"].get<double>())));
}

TEST_F(ZooTest, ADamagedNetworkDoesNotHideTheOthers) {
  fs::create_directories(folder_ / "models/mine");
  write_atomically(folder_ / "models/mine/damaged.safetensors", "nothing of the kind");
  const ProgramResult listed = remcaps({"zoo", "list"});
  EXPECT_EQ(listed.exit_code, 1);
  EXPECT_THAT(listed.out, AllOf(HasSubstr("zoo:mnist/dr-capsnet-rem "), Not(HasSubstr("damaged"))));
  EXPECT_THAT(listed.err, HasSubstr("mine/damaged.safetensors"));
}

TEST_F(ZooTest, ThreadsAreThoseOfTheCommandLine) {
  for (const char* threads : {"1", "3"}) {
    const ProgramResult result =
        remcaps({"bench", "infer", "--model", "eff-capsnet", "--batch", "1", "--seconds", "0.01",
                 "--threads", threads, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out)["threads"], std::stoi(threads));
  }
  expect_one_line(remcaps({"check", "--threads", "0"}), 2, "--threads");
}

// libgomp prints what it read before main().
class OpenMpWaits : public ZooTest {
 protected:
  std::string spin_count() const {
    const ProgramResult result = remcaps({"--version"});
    EXPECT_EQ(result.exit_code, 0);
    const size_t at = result.err.find("GOMP_SPINCOUNT = '");
    if (at == std::string::npos) return "";
    return result.err.substr(at + 18, result.err.find('\'', at + 18) - at - 18);
  }
  const ScopedVariable display_ = {"OMP_DISPLAY_ENV", "verbose"};
};

TEST_F(OpenMpWaits, AreShort) {
  const ScopedVariable unset = {"GOMP_SPINCOUNT", std::nullopt};
  const ScopedVariable policy = {"OMP_WAIT_POLICY", std::nullopt};
  if (spin_count().empty()) GTEST_SKIP() << "another OpenMP than libgomp";
  EXPECT_EQ(spin_count(), "3000");
}

TEST_F(OpenMpWaits, AreTheUsersIfTheUserChose) {
  const ScopedVariable count = {"GOMP_SPINCOUNT", "77"};
  EXPECT_EQ(spin_count(), "77");
  const ScopedVariable unset = {"GOMP_SPINCOUNT", std::nullopt};
  const ScopedVariable policy = {"OMP_WAIT_POLICY", "passive"};
  EXPECT_EQ(spin_count(), "0");
}

TEST_F(OpenMpWaits, LeaveTheEnvironmentAsItWas) {
  // HOME is the only variable whose place can be borrowed.
  const ScopedVariable a = {"_", std::nullopt}, b = {"OLDPWD", std::nullopt},
                       c = {"SHLVL", std::nullopt}, d = {"PWD", std::nullopt},
                       data = {"REMCAPS_DATA", std::nullopt},
                       cache = {"XDG_CACHE_HOME", std::nullopt}, home = {"HOME", "/the/home"};
  EXPECT_EQ(spin_count(), "3000");
  EXPECT_THAT(remcaps({"data", "list"}).out, HasSubstr("/the/home/"));
}

}  // namespace
}  // namespace remcaps::testing
