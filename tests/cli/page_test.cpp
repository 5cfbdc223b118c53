// page, with the real program. What the page does is tested in web/test/draw.test.ts.
#include <numeric>

#include "tests/cli/cli_fixture.h"

namespace remcaps::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class PageTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (IsSkipped()) return;
    begin_with(kept_, [this] {
      const ProgramResult trained = remcaps(short_training("runs"));
      ASSERT_EQ(trained.exit_code, 0) << trained.err;
    });
  }

  json data_of(const std::string& file) const {
    const std::string page = read_file(folder_ / file);
    const std::string begin = R"(<script type="application/json" id="report-data">)";
    const size_t from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
  }

  const ScopedVariable models_ = {"REMCAPS_MODELS", REMCAPS_SOURCE_MODELS};
  static inline std::optional<TemporaryFolder> kept_;
};

TEST_F(PageTest, HoldsTheNetworkItsDictionaryAndTestImages) {
  const ProgramResult made = remcaps({"page", "runs/seed-42", "--out", "pages/draw.html"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.err, "");
  EXPECT_THAT(made.out, ::testing::MatchesRegex("pages/draw.html: .* of fashion-mnist/eff-capsnet"
                                                ".*\n"));
  EXPECT_LT(fs::file_size(folder_ / "pages/draw.html"), 4'000'000u);
  // Nothing else is left: the network's file was temporary.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "pages"), fs::directory_iterator()), 1);
  EXPECT_THAT(read_file(folder_ / "pages/draw.html"), HasSubstr("default-src 'none'"));

  const json data = data_of("pages/draw.html");
  const json& network = data["networks"].at(0);
  EXPECT_EQ(data["networks"].size(), 1u);
  EXPECT_EQ(data["object_side"], 0);
  EXPECT_EQ(network["layers"].at(0)["children"], 16);
  const auto counts = network["trees"]["counts"].get<std::vector<int64_t>>();
  const auto classes = network["trees"]["classes"].get<std::vector<int64_t>>();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 32);
  EXPECT_EQ(network["trees"]["hashes"]["shape"], (std::vector<size_t>{counts.size(), 16}));
  EXPECT_TRUE(std::is_sorted(classes.begin(), classes.end()));
  // At most eight images of a tree are shown, and those that the network gets wrong.
  EXPECT_EQ(data["images"]["samples"], 32);
  const auto trees = network["trees"]["of_images"].get<std::vector<size_t>>();
  EXPECT_EQ(data["images"]["labels"].size(), trees.size());
  for (size_t tree = 0; tree < counts.size(); ++tree) {
    const auto shown = std::count(trees.begin(), trees.end(), tree);
    EXPECT_LE(shown, counts[tree]);
    EXPECT_GE(shown, std::min<int64_t>(counts[tree], 8));
  }
}

TEST_F(PageTest, WithoutTheDataSetItSaysWhatIsMissing) {
  fs::create_directory(folder_ / "empty");
  const ProgramResult made = remcaps({"page", "zoo:mnist/eff-capsnet-rem", "--data", "empty"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("note: no dictionaries and no test images: mnist"));
  EXPECT_EQ(std::count(made.err.begin(), made.err.end(), '\n'), 1) << made.err;
  const json data = data_of("draw.html");
  EXPECT_TRUE(data["images"].is_null());
  EXPECT_TRUE(data["networks"].at(0)["trees"].is_null());
  EXPECT_EQ(data["object_side"], 20);
}

TEST_F(PageTest, MistakesAreOneLineAndWriteNothing) {
  expect_one_line(remcaps({"page", "zoo:mnist/eff-capsnet-re"}), 2,
                  "did you mean mnist/eff-capsnet-rem?");
  expect_one_line(remcaps({"page", "runs/seed-43"}), 1, "runs/seed-43");
  expect_one_line(remcaps({"page", "runs/seed-42", "--out", "runs/seed-42/run.json/draw.html"}), 1,
                  "runs/seed-42/run.json");
  expect_one_line(remcaps({"page", "runs/seed-42", "zoo:mnist/eff-capsnet-rem"}), 1,
                  "runs/seed-42 is for fashion-mnist and zoo:mnist/eff-capsnet-rem for mnist");
  expect_one_line(remcaps({"page", "a", "b", "c"}), 2, "c");
  EXPECT_FALSE(fs::exists(folder_ / "draw.html"));
}

}  // namespace
}  // namespace remcaps::testing
