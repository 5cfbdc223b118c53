#include "remcaps/report/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/report/overview.h"
#include "remcaps/report/table_text.h"
#include "tests/report/finished_runs.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class TableTest : public FinishedRuns {};

const PaperCell kAccuracy = {"mnist/dr-capsnet-rem", Metric::kAccuracyQuantized, "test", -1, {}};

TEST_F(TableTest, AggregatesOverSeedsAsPublished) {
  add_run("mnist/dr-capsnet-rem", 43, 0.95, 0.94, {3, 5}, 0.8, 800, {10, 20});
  add_run("mnist/dr-capsnet-rem", 42, 0.97, 0.96, {1, 5}, 0.9, 700, {30, 40});
  add_run("mnist/dr-capsnet-rem", 44, 0.96, 0.95, {2, 2}, 0.7, 900, {50, 0});
  const RunResults all = results();
  PaperCell cell = kAccuracy;
  auto ours = aggregate(all, cell);
  ASSERT_TRUE(ours);
  EXPECT_NEAR(ours->value, 95, 1e-9);
  EXPECT_NEAR(*ours->over_seeds, std::sqrt(2.0 / 3), 1e-9);
  EXPECT_THAT(ours->seeds, ElementsAre(42, 43, 44));

  cell.metric = Metric::kEntropy;
  ours = aggregate(all, cell);
  EXPECT_NEAR(ours->value, 3, 1e-9);          // of 4, 3 and 2
  EXPECT_NEAR(*ours->over_classes, 1, 1e-9);  // classes have 2 and 4
  EXPECT_NEAR(*ours->over_seeds, std::sqrt(2.0 / 3), 1e-9);

  cell.metric = Metric::kSparsity;
  EXPECT_NEAR(aggregate(all, cell)->value, 80, 1e-9);
  EXPECT_FALSE(aggregate(all, cell)->over_seeds.has_value());

  cell.metric = Metric::kKeys;
  cell.class_index = 1;
  EXPECT_EQ(aggregate(all, cell)->value, 20);

  cell.metric = Metric::kParameters;
  EXPECT_EQ(aggregate(all, cell)->value, 700) << "of the best seed, 42";
}

TEST_F(TableTest, ParametersAreTheBestSeedsOfThoseThatSayThem) {
  add_run("mnist/dr-capsnet-rem", 42, 0.97, 0.96, {1, 5}, 0.9, 700);
  add_run("mnist/dr-capsnet-rem", 43, 0.95, 0.94, {3, 5}, 0.8, 800);
  RunResults all = results();
  all.at("mnist/dr-capsnet-rem").at("").front().summary.erase("parameters_nonzero");
  PaperCell cell = kAccuracy;
  cell.metric = Metric::kParameters;
  const auto ours = aggregate(all, cell);
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->value, 800);
  EXPECT_THAT(ours->seeds, ElementsAre(43));
}

TEST_F(TableTest, OtherSplitsComeFromTheirOwnPartOfTheSummary) {
  add_run("smallnorb/eff-capsnet-azimuth", 42, 0.5, 0.5, {1}, 0, 10);
  const RunResults all = results();
  PaperCell cell{"smallnorb/eff-capsnet-azimuth", Metric::kAccuracyQuantized, "novel", -1, {}};
  EXPECT_NEAR(aggregate(all, cell)->value, 80, 1e-9);
  cell.split = "familiar";
  EXPECT_NEAR(aggregate(all, cell)->value, 90, 1e-9);
  cell.split = "elsewhere";
  EXPECT_FALSE(aggregate(all, cell).has_value());
}

TEST_F(TableTest, OfTwoRunsOfOneSeedTheLongerCounts) {
  add_run("mnist/dr-capsnet-rem", 42, 0.9, 0.9, {1}, 0, 10, {1}, 5);
  add_run("mnist/dr-capsnet-rem", 42, 0.8, 0.8, {1}, 0, 10, {1}, 50, "-2");
  const RunResults all = results();
  ASSERT_EQ(all.at("mnist/dr-capsnet-rem").at("").size(), 1u);
  EXPECT_NEAR(aggregate(all, kAccuracy)->value, 80, 1e-9);
}

TEST_F(TableTest, OnlyRunsOfTheSameExperimentAreAveraged) {
  const auto add = [&](const std::string& name, int64_t seed, double accuracy, int64_t epochs,
                       const std::vector<std::string>& overrides) {
    Recipe recipe = load_recipe("mnist/dr-capsnet", overrides);
    const json summary = {{"recipe", "mnist/dr-capsnet"},
                          {"seed", seed},
                          {"epochs", epochs},
                          {"accuracy", accuracy},
                          {"options", yaml_paths(recipe.to_yaml())}};
    make_folder(folder_ / name);
    write_atomically(folder_ / name / "summary.json", summary.dump());
  };
  add("changed", 42, 0.1, 50, {"train.lr=9"});
  add("changed-43", 43, 0.3, 50, {"train.lr=9", "precision=bf16"});
  add("few", 44, 0.5, 50, {"dataset.limit_train=100"});
  add("longer", 42, 0.9, 40, {"precision=bf16", "train.epochs=40"});
  add("pasted", 42, 0.2, 90, {"dataset.name=folder", "dataset.folder=somewhere"});
  add("shorter", 42, 0.8, 30, {"train.epochs=30"});
  const FoundResults all = found();
  const Experiments& experiments = all.results.at("mnist/dr-capsnet");
  ASSERT_EQ(experiments.size(), 3u);
  const PaperCell cell = {"mnist/dr-capsnet", Metric::kAccuracy, "test", -1, {}};
  EXPECT_NEAR(aggregate(all.results, cell)->value, 90, 1e-9);
  EXPECT_NEAR(aggregate(all.results, cell, "train.lr=9")->value, 20, 1e-9);
  EXPECT_NEAR(aggregate(all.results, cell, "dataset.limit_train=100")->value, 50, 1e-9);
  const std::string text = render_table(paper_table("mnist"), all.results, "markdown");
  EXPECT_THAT(text, HasSubstr("| DR-CapsNet | ours | 90.00 |"));
  EXPECT_THAT(text, HasSubstr("|  | ours, train.lr=9 | 20.00 ± 10.00 |"));
  const std::vector<RunResult>& runs = experiments.at("");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].place, folder_ / "longer");
  EXPECT_EQ(runs[0].changed(), (OptionMap{{"precision", "bf16"}, {"train.epochs", "40"}}));
  const auto line = [&](const std::string& text) { return (folder_ / text).string(); };
  EXPECT_THAT(all.notes(),
              UnorderedElementsAre(
                  line("pasted") +
                      " is left out: not on the data of mnist/dr-capsnet (dataset.name=folder)",
                  line("shorter") + " is left out: seed 42 of mnist/dr-capsnet has a longer run, " +
                      line("longer")));
}

TEST_F(TableTest, OptionsUnderTheirOldNamesAreUnderstood) {
  const json summary = {{"recipe", "mnist/dr-capsnet-rem"},
                        {"seed", 42},
                        {"options", {{"pruning.twt", "0.5"}, {"pruning.pwe", "-1"}}}};
  make_folder(folder_ / "a");
  write_atomically(folder_ / "a" / "summary.json", summary.dump());
  const Experiments experiments = results().at("mnist/dr-capsnet-rem");
  ASSERT_EQ(experiments.size(), 1u);
  EXPECT_EQ(experiments.begin()->second.at(0).changed(), (OptionMap{{"pruning.tolerance", "0.5"}}));
}

TEST_F(TableTest, ARunThatIsNamedTwiceIsNotLeftOut) {
  add_run("mnist/dr-capsnet-rem", 42, 0.9, 0.9, {1}, 0, 10);
  EXPECT_THAT(find_results({folder_.path(), folder_ / "mnist"}).notes(), IsEmpty());
}

TEST_F(TableTest, WhereItsFilesLieDoesNotChangeARecipe) {
  const OptionMap options =
      yaml_paths(load_recipe("mnist/dr-capsnet-rem-frozen-decoder",
                             {"train.start_from=elsewhere", "dataset.folder=here", "train.lr=0.5"})
                     .to_yaml());
  EXPECT_EQ(RecipeChanges().of("mnist/dr-capsnet-rem-frozen-decoder", options),
            (OptionMap{{"train.lr", "0.5"}}));
}

TEST_F(TableTest, NumbersThatAreNoneAreErrorsThatNameTheFile) {
  for (const char* wrong : {R"({"recipe": "a", "seed": 1, "epochs": "ten"})",
                            R"({"recipe": "a", "seed": 1, "stopped": null})",
                            R"({"recipe": "a", "seed": 1, "keys_per_class": [1, "two"]})",
                            R"({"recipe": "a", "seed": 1, "options": 3})"}) {
    write_atomically(folder_ / "summary.json", std::string_view(wrong));
    try {
      results();
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(folder_.path().string())) << wrong;
      EXPECT_THAT(error.what(), Not(HasSubstr("json.exception"))) << wrong;
    }
  }
}

TEST_F(TableTest, AnOptionThatIsNoYamlIsAnErrorThatNamesTheFile) {
  write_atomically(folder_ / "summary.json",
                   std::string_view(R"({"recipe": "a", "seed": 1, "options": )"
                                    R"({"train.start_from": "[a: {"}})"));
  const RunResult run = results().at("a").begin()->second.front();
  try {
    run.note();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_.path().string()));
  }
}

TEST_F(TableTest, ShowsOursAndThePapersInEveryFormat) {
  add_run("mnist/dr-capsnet", 42, 0.9951, 0.9950, {9, 10}, 0, 6804384);
  add_run("mnist/dr-capsnet-rem", 42, 0.9953, 0.9952, {2, 4}, 0.8687, 893111);
  const PaperTable& table = paper_table("mnist");
  const std::string text = render_table(table, results(), "text");
  EXPECT_THAT(text, HasSubstr("99.57±0.02"));  // the paper's vanilla
  EXPECT_THAT(text, HasSubstr("99.51"));
  EXPECT_THAT(text, HasSubstr("3.00±1.00"));
  EXPECT_THAT(text, HasSubstr("86.87"));
  EXPECT_THAT(text, HasSubstr("893k"));
  EXPECT_THAT(text, HasSubstr("No run yet of: mnist/gamma-capsnet"));
  EXPECT_THAT(text, HasSubstr("over seeds"));

  EXPECT_THAT(render_table(table, results(), "markdown"), HasSubstr("| DR-CapsNet+REM | ours |"));
  const std::string latex = render_table(table, results(), "latex");
  EXPECT_THAT(latex, HasSubstr("3.00$\\pm$1.00"));
  EXPECT_THAT(latex, HasSubstr("accuracy (\\%)"));
  EXPECT_THAT(latex, Not(HasSubstr("&  &  &  &  \\\\\n&")));
  EXPECT_THAT(render_table(table, results(), "csv"),
              HasSubstr("DR-CapsNet+REM,entropy,mnist/dr-capsnet-rem,,test,entropy,42,3,0,1,4.16"));
  const json parsed = json::parse(render_table(table, results(), "json"));
  EXPECT_EQ(parsed.at("table"), "mnist");
  EXPECT_EQ(parsed.at("runs").size(), 2u);
}

TEST_F(TableTest, RowsWithoutARunCanBeLeftOut) {
  add_run("fashion-mnist/dr-capsnet-rem", 42, 0.92, 0.91, {2, 4}, 0.8, 800);
  add_run("fashion-mnist/dr-capsnet-rem", 43, 0.93, 0.92, {2, 4}, 0.8, 800);
  add_run("fashion-mnist/dr-capsnet", 42, 0.93, 0.92, {2, 4}, 0, 8000);
  const PaperTable done = rows_with_runs(paper_table("main"), results());
  ASSERT_EQ(done.rows.size(), 1u);
  const std::string text = render_table(done, results(), "markdown");
  EXPECT_THAT(text, HasSubstr("| 1/2 |")) << "seeds of Q and REM";
  EXPECT_THAT(text, Not(HasSubstr("No run yet")));
  EXPECT_TRUE(rows_with_runs(paper_table("affnist"), results()).rows.empty());
}

TEST_F(TableTest, ARowWithoutRunsHasThePapersLineOnly) {
  add_run("mnist/dr-capsnet-rem", 42, 0.9953, 0.9952, {2, 4}, 0.8687, 893111);
  const std::string text = render_table(paper_table("mnist"), results(), "markdown");
  EXPECT_THAT(text, HasSubstr("| DR-CapsNet+Q | paper | 99.56 ± 0.03 |"));
  EXPECT_THAT(text, HasSubstr("| DR-CapsNet+REM | ours | 99.52 |"));
  EXPECT_THAT(text, HasSubstr("|  | paper | 99.56 ± 0.02 |"));
  EXPECT_THAT(render_table(paper_table("affnist"), {}, "text"), Not(HasSubstr("ours")));
}

TEST_F(TableTest, TheOverviewSaysWhetherRunsConverged) {
  const auto add = [&](int64_t seed, const std::string& stopped, int64_t epochs) {
    const json summary = {
        {"recipe", "mnist/dr-capsnet-rem"},
        {"seed", seed},
        {"epochs", epochs},
        {"stopped", stopped},
        {"accuracy_quantized", 0.99},
        {"entropy", 4.0 + 0.1 * double(seed)},
        {"sparsity", 0.5},
        {"data_note", "half of the images"},
        {"options", {{"train.start_from", seed == 1 ? "\"\"" : "/home/me/mnist/base/seed-7"}}}};
    write_atomically(folder_ / fmt::format("seed-{}.json", seed), summary.dump());
  };
  add(1, "patience", 344);
  add(2, "minutes", 187);
  add(3, "epochs", 300);
  EXPECT_THAT(
      render_overview(results(), "markdown"),
      HasSubstr("| mnist/dr-capsnet-rem | 3 | 99.00 ± 0.00 | 99.56 | 4.20 ± 0.08 | 4.16 | "
                "50.00 | 85.53 | converged at 344; cut at 187, 300 | half of the images; half "
                "of the images; starts from mnist/base |"));
  EXPECT_THROW(render_overview(results(), "latex"), UsageError);
}

TEST_F(TableTest, OverviewSaysWhereEntropyIsNotLowerWithRem) {
  const auto row = [&](const std::string& recipe) {
    const std::string text = render_overview(results(), "markdown");
    const size_t begin = text.find("| " + recipe + " |");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  const std::string note = "entropy not lower than without REM";
  add_run("mnist/dr-capsnet", 42, 0.99, 0.99, {4, 4}, 0, 100);
  add_run("mnist/dr-capsnet-rem", 42, 0.99, 0.99, {3, 3}, 0.9, 10);
  EXPECT_THAT(row("mnist/dr-capsnet-rem"), Not(HasSubstr(note)));
  add_run("mnist/dr-capsnet-rem", 43, 0.99, 0.99, {6, 6}, 0.9, 10);  // 4.5 bits in the mean
  EXPECT_THAT(row("mnist/dr-capsnet-rem"), HasSubstr(note));
  EXPECT_THAT(row("mnist/dr-capsnet"), Not(HasSubstr(note)));
  add_run("svhn/dr-capsnet-rem", 42, 0.99, 0.99, {6, 6}, 0.9, 10);
  EXPECT_THAT(row("svhn/dr-capsnet-rem"), Not(HasSubstr(note))) << "nothing to compare it with";
}

TEST(PaperTables, BadTextsAreErrorsThatNameThePlace) {
  const auto error_of = [](const std::string& columns, const std::string& rows) {
    try {
      read_paper_tables(
          fmt::format("- {{name: t, labels: [model], columns: [{}], rows: [{}]}}", columns, rows),
          "file");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string column = "{heading: a, metric: entropy}";
  EXPECT_EQ(error_of(column, "{labels: [x], recipe: r, paper: 1.5±0.5}"), "");
  EXPECT_THAT(error_of(column, "{labels: [x], recipe: r, paper: 1.5 2}"),
              HasSubstr("table t, row 1: 2 numbers for 1 columns"));
  EXPECT_THAT(error_of(column, "{labels: [x], recipe: r, paper: 1.5±x}"), HasSubstr("\"x\""));
  EXPECT_THAT(error_of(column, "{labels: [x, y], recipe: r}"), HasSubstr("2 labels; expected 1"));
  EXPECT_THAT(error_of(column, "{labels: [x], recipes: r}"), HasSubstr("recipes"));
  EXPECT_THAT(error_of("{heading: a, metric: entropie}", ""), HasSubstr("entropie"));
}

TEST_F(TableTest, SaysWhatRanHowLongAndWhyItStopped) {
  const auto folder = folder_.path() / "mnist/dr-capsnet";
  make_folder(folder);
  const auto write = [&](int64_t seed, const std::string& stopped, int64_t epochs) {
    const json summary = {{"recipe", "mnist/dr-capsnet"},
                          {"seed", seed},
                          {"epochs", epochs},
                          {"stopped", stopped},
                          {"seconds", 180 * seed},
                          {"machine", "NVIDIA H200"},
                          {"changed", {{"precision", "bf16"}, {"train.minutes", "5"}}},
                          {"data_note", "half of the images"},
                          {"effective_parts", {{"half", 2.5 * static_cast<double>(seed)}}},
                          {"accuracy", 0.99}};
    write_atomically(folder / fmt::format("seed-{}.json", seed), summary.dump());
  };
  write(1, "patience", 300);
  write(3, "minutes", 57);
  EXPECT_THAT(
      render_table(paper_table("mnist"), results(), "markdown"),
      HasSubstr("| mnist/dr-capsnet | 1, 3 | 300, 57 | 6:00 | NVIDIA H200 | 99.00 ± 0.00 |"
                " 5.0 | 0 | stopped by time limit at epoch 57 (seed 3); precision=bf16; half "
                "of the images |"))
      << "without the columns that no run has a number for";
}

TEST_F(TableTest, CellsAreAsManyAsColumnsInEveryTable) {
  for (const PaperTable& table : paper_tables()) {
    for (const PaperRow& row : table.rows) {
      EXPECT_EQ(row.cells.size(), table.columns.size()) << table.name;
      EXPECT_EQ(row.labels.size(), table.labels.size()) << table.name;
    }
    for (const std::string& format : table_formats())
      EXPECT_NO_THROW(render_table(table, {}, format)) << table.name << " " << format;
  }
}

TEST_F(TableTest, UnknownNamesAndBrokenSummariesAreErrors) {
  EXPECT_THROW(paper_table("minst"), UsageError);
  EXPECT_THROW(find_results({folder_ / "nowhere"}), Error);
  write_atomically(folder_ / "summary.json", std::string_view("{\"seed\": 1"));
  EXPECT_THROW(results(), Error);
}

TEST(TableText, IsWrappedAndSplitForANarrowTerminal) {
  const std::vector<std::vector<std::string>> rows = {
      {"network", "", "vanilla accuracy", "accuracy with REM", "note"},
      {"DR-CapsNet", "ours", "99.5±0.1", "99.4", "one two three four five six"},
      {"", "paper", "99.6", "99.7", ""}};
  EXPECT_EQ(fitted(rows, 2, 2, 200), aligned(rows, 2));
  EXPECT_EQ(fitted(rows, 2, 2, std::nullopt), aligned(rows, 2));
  EXPECT_EQ(fitted(rows, 2, 2, 40),
            "network             vanilla  accuracy\n"
            "                   accuracy      with\n"
            "                                  REM\n"
            "DR-CapsNet  ours   99.5±0.1      99.4\n"
            "            paper      99.6      99.7\n"
            "\n"
            "network                          note\n"
            "DR-CapsNet  ours   one two three four\n"
            "                             five six\n"
            "            paper\n");
}

}  // namespace
}  // namespace remcaps
