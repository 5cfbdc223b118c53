#include "remcaps/report/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "remcaps/base/error.h"
#include "remcaps/explain/pasted.h"
#include "remcaps/report/figure_chart.h"
#include "remcaps/report/shown_runs.h"
#include "tests/explain/tiny_run.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Chart, TicksAreRoundAndCoverTheData) {
  EXPECT_THAT(nice_ticks(0, 1),
              ElementsAre(0, ::testing::DoubleEq(0.2), ::testing::DoubleEq(0.4),
                          ::testing::DoubleEq(0.6000000000000001), ::testing::DoubleEq(0.8), 1));
  EXPECT_THAT(nice_ticks(0, 10), ElementsAre(0, 2, 4, 6, 8, 10));
  const std::vector<double> ticks = nice_ticks(97.53, 99.6);
  EXPECT_LE(ticks.front(), 97.53);
  EXPECT_GE(ticks.back(), 99.6);
  EXPECT_GE(nice_ticks(3, 3).size(), 2u);
}

TEST(Chart, TicksOfWholeNumbersAreWhole) {
  EXPECT_THAT(nice_ticks(1, 2, 5, 1), ElementsAre(1, 2));
  EXPECT_THAT(nice_ticks(0.95, 1.05, 5, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(nice_ticks(1, 50, 5, 1), ElementsAre(0, 10, 20, 30, 40, 50));
  Chart epochs;
  epochs.x.whole = true;
  epochs.lines = {{.name = "entropy", .x = {1, 2}, .y = {10, 60}}};
  EXPECT_THAT(draw_chart(epochs).str("epochs"), Not(HasSubstr(">1.2<")));
}

TEST(Chart, IsAsWideAsItsHeadings) {
  const std::string title(80, 'x'), subtitle(300, 'x');
  Chart chart;
  chart.title = title;
  EXPECT_GE(draw_chart(chart).width(), text_width(title, 13, /*bold=*/true));
  const Svg small(100, 100);
  EXPECT_GE(arrange({small}, 2, title).width(), text_width(title, 17, /*bold=*/true));
  EXPECT_GE(arrange({small}, 2, title, subtitle).width(), text_width(subtitle, 12));
  EXPECT_LT(arrange({small}, 2, "short").width(), 200);
}

TEST(Chart, DrawsBarsLinesAndTheirNames) {
  Chart chart;
  chart.title = "T & T";
  chart.categories = {"a", "b"};
  chart.bars = {{"first <run>", {1, 4}}, {"second", {2, 3}}};
  const std::string bars = draw_chart(chart).str("bars");
  EXPECT_THAT(bars, HasSubstr("T &amp; T"));
  EXPECT_THAT(bars, HasSubstr("first &lt;run&gt; b: 4"));
  Chart curve;
  curve.lines = {{.name = "accuracy", .x = {1, 2, 3}, .y = {1, std::nan(""), 3}},
                 {.name = "entropy", .x = {1, 2}, .y = {5, 6}, .right = true}};
  const std::string lines = draw_chart(curve).str("lines");
  EXPECT_THAT(lines, HasSubstr("entropy: 2, 6"));
  EXPECT_THAT(lines, Not(HasSubstr("nan")));
}

TEST(Chart, LargeTicksAreShortAndAlike) {
  Chart chart;
  chart.y = {.log = true, .low = 0.7};
  chart.categories = {"a"};
  chart.bars = {{"", {2e6}}};
  const std::string svg = draw_chart(chart).str("bars");
  for (const char* tick : {">1<", ">1k<", ">10k<", ">100k<", ">1M<"})
    EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, Not(HasSubstr("e+0")));
}

TEST(Chart, AllItsLinesHaveDotsOrNone) {
  Chart chart;
  chart.lines = {{.name = "short", .x = {1, 2}, .y = {1, 2}}, {.name = "long", .x = {}, .y = {}}};
  EXPECT_THAT(draw_chart(chart).str("lines"), HasSubstr("<circle"));
  for (int i = 0; i < 100; ++i) {
    chart.lines[1].x.push_back(i);
    chart.lines[1].y.push_back(i);
  }
  EXPECT_THAT(draw_chart(chart).str("lines"), Not(HasSubstr("<circle")));
}

TEST(Chart, SurvivesNoDataAndOnePoint) {
  for (const bool log : {false, true}) {
    Chart chart;
    chart.y.log = log;
    EXPECT_THAT(draw_chart(chart).str("empty"), Not(HasSubstr("nan")));
    chart.lines = {{.name = "point", .x = {7}, .y = {7}}};
    EXPECT_THAT(draw_chart(chart).str("point"), Not(HasSubstr("nan")));
  }
}

TEST(Chart, RefusesBarsThatDoNotFitTheirCategories) {
  Chart chart;
  chart.categories = {"a", "b"};
  chart.bars = {{"short", {1}}};
  EXPECT_THROW(draw_chart(chart), Error);
}

TEST(FigureTable, QuotesWhatCsvNeedsQuoted) {
  FigureTable table{{"a", "b"}, {}};
  table.add("x, \"y\"", int64_t{3});
  table.add("plain", std::nan(""));
  EXPECT_EQ(table.csv(), "a,b\n\"x, \"\"y\"\"\",3\nplain,\n");
}

class Figures : public ::testing::Test {
 protected:
  // Writes a figure; checks both files; returns the CSV.
  std::string write(const std::string& name, FigureOptions options) {
    const FigureFiles files = write_figure(name, options, runs_.folder() / "figures");
    const std::string svg = read_file(files.svg), csv = read_file(files.csv);
    EXPECT_THAT(svg, HasSubstr("</svg>")) << name;
    EXPECT_FALSE(svg.find("\"nan") != std::string::npos || svg.find("\"-nan") != std::string::npos)
        << name << " has a coordinate that is no number";
    EXPECT_GE(std::count(csv.begin(), csv.end(), '\n'), 2) << name << ": no rows";
    return csv;
  }
  static FigureOptions of(std::vector<std::string> runs) {
    FigureOptions options;
    options.runs = std::move(runs);
    return options;
  }

  testing::TinyRuns runs_;
};

TEST_F(Figures, EveryFigureOfARunOnAGridIsWritten) {
  const std::string run = runs_.on_grid();
  for (const char* name :
       {"architecture", "pipeline", "saliency-steps", "saliency", "keys", "sparsity",
        "perturbations", "couplings", "couplings-epochs", "dictionary", "parse-tree",
        "parse-trees-dataset", "parse-trees-classes", "parse-trees-samples"})
    write(name, of({run}));
  FigureOptions contributions = of({run});
  contributions.tree.of = TreeOf::kContributions;
  for (const char* name : {"saliency", "parse-tree", "parse-trees-samples"})
    write(name, contributions);
  EXPECT_THROW(write_figure("parse-trees-dataset", contributions, runs_.folder().path()), Error);
}

TEST_F(Figures, RunsStandSideBySide) {
  const std::string first = runs_.layered(), second = runs_.layered("other");
  for (const char* name : {"parse-tree", "parse-trees-dataset", "parse-trees-classes", "keys"}) {
    const std::string csv = write(name, of({first, second}));
    EXPECT_THAT(csv, HasSubstr("layered")) << name;
    EXPECT_THAT(csv, HasSubstr("other")) << name;
  }
}

TEST_F(Figures, ALegendStandsInAFigureOnce) {
  const auto count = [](const std::string& text, const std::string& part) {
    int64_t times = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++times;
    return times;
  };
  const FigureOptions options = of({runs_.layered(), runs_.layered("other")});
  const auto svg_of = [&](const char* name) {
    return read_file(write_figure(name, options, runs_.folder() / "legends").svg);
  };
  for (const char* name : {"parse-trees-samples", "parse-trees-classes", "parse-trees-dataset"})
    EXPECT_EQ(count(svg_of(name), ">edge: coupling<"), 1) << name;
  EXPECT_EQ(count(svg_of("couplings"), ">other<"), 1);
}

TEST_F(Figures, OneCapsuleIsNotSeveral) {
  FigureOptions options = of({runs_.layered()});
  options.tree.threshold = 1;  // only the class is left
  const std::string svg = read_file(write_figure("parse-tree", options, runs_.folder().path()).svg);
  EXPECT_THAT(svg, HasSubstr(": 1 capsule, 0 connections<"));
}

TEST_F(Figures, RunsOfOtherClassesAreNotComparedClassByClass) {
  std::vector<ShownRun> runs = load_shown_runs(of({runs_.layered(), runs_.layered("other")}));
  check_same_classes(runs);
  runs[1].run.recipe.dataset.name = "birds";
  runs[1].run.class_names[0] = "owl";
  try {
    check_same_classes(runs);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layered (folder, 3 classes) and other (birds, "));
  }
}

TEST_F(Figures, LevelsAreMeasuredOneByOne) {
  FigureOptions options = of({runs_.on_grid()});
  options.levels = {5, 2, 11};
  const std::string csv = write("levels", options);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_LT(csv.find("tiny/grid,2,"), csv.find("tiny/grid,5,"));
}

TEST_F(Figures, EntropyComesFromTheMetricsFile) {
  const std::string run = runs_.on_grid();
  EXPECT_THROW(write_figure("entropy", of({run}), runs_.folder().path()), Error);
  MetricsFile metrics(std::filesystem::path(run) / "metrics.csv");
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    EpochRecord record;
    record.epoch = epoch;
    record.sparsity = 0.1 * static_cast<double>(epoch);
    if (epoch % 2 == 1) {
      record.entropy = 2.5;
      record.accuracy_quantized = 0.9;
      record.keys = 12;
    }
    metrics.append(record);
  }
  const std::string csv = write("entropy", of({run}));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << "only epochs with an entropy";
  EXPECT_THAT(csv, HasSubstr("tiny/grid,4,"));
}

// A collected summary of a made-up run on MNIST.
nlohmann::json collected_summary(const std::string& recipe, double sparsity) {
  std::vector<int64_t> keys, samples;
  std::vector<double> entropies;
  for (int64_t j = 0; j < 10; ++j) {
    keys.push_back(7 + j);
    samples.push_back(1000);
    entropies.push_back(0.5);
  }
  return {{"recipe", recipe},
          {"seed", 42},
          {"dataset", "mnist"},
          {"samples", 10000},
          {"accuracy_quantized", 0.99},
          {"entropy", 0.5},
          {"median_keys", 11.5},
          {"sparsity", sparsity},
          {"entropy_per_class", entropies},
          {"keys_per_class", keys},
          {"samples_per_class", samples},
          {"options", {{"pruning.strategy", sparsity > 0 ? "snip" : "none"}}}};
}

TEST_F(Figures, ChartsTakeCollectedSummariesToo) {
  const auto file = [&](const std::string& name, const nlohmann::json& content) {
    write_atomically(runs_.folder() / name, content.dump());
    return (runs_.folder() / name).string();
  };
  const std::string dense = file("a.json", collected_summary("mnist/dr-capsnet", 0));
  const std::string pruned = file("b.json", collected_summary("mnist/dr-capsnet-snip-90", 0.9));
  const std::string keys = write("keys", of({dense, pruned}));
  EXPECT_THAT(keys, HasSubstr("dr-capsnet,9,1000,16,0.5\n"));
  EXPECT_THAT(keys, HasSubstr("dr-capsnet-snip-90,0,1000,7,0.5\n"));
  EXPECT_THAT(write("sparsity", of({dense, pruned})),
              HasSubstr("dr-capsnet-snip-90,snip,0.9,0.99,0.5,11.5\n"));

  nlohmann::json trained = collected_summary("mnist/dr-capsnet-rem", 0.9);
  const std::string none = file("c.json", trained);
  trained["curve"] = {{"epoch", {9, 19}},
                      {"sparsity", {0.5, 0.9}},
                      {"accuracy_quantized", {0.98, 0.99}},
                      {"entropy", {9.0, 0.5}},
                      {"keys", {700, 11}}};
  const std::string curve = file("d.json", trained);
  EXPECT_THAT(write("entropy", of({curve})),
              HasSubstr("mnist/dr-capsnet-rem,20,0.9,0.99,0.5,11\n"));
  trained["curve"]["keys"] = {700};
  const std::string damaged = file("e.json", trained);

  const auto error = [&](const std::string& figure, const FigureOptions& options) -> std::string {
    try {
      write_figure(figure, options, runs_.folder().path());
    } catch (const Error& what) {
      return what.what();
    }
    return "";
  };
  EXPECT_THAT(error("entropy", of({none})), HasSubstr("has no curve"));
  EXPECT_THAT(error("entropy", of({damaged})), HasSubstr("1 values of keys, 2 epochs"));
  EXPECT_THAT(error("keys", of({dense, runs_.on_grid()})), HasSubstr("1 of 2 runs are summaries"));
  FigureOptions limited = of({dense});
  limited.limit = 10;
  EXPECT_THAT(error("keys", limited), HasSubstr("--limit 10"));
  limited.limit = 0;
  limited.split = "novel";
  EXPECT_THAT(error("keys", limited), HasSubstr("has no parse trees of the novel images"));
}

TEST_F(Figures, ParetoShowsWhichRunsNoOtherBeats) {
  const auto file = [&](const std::string& recipe, double accuracy, double entropy, int64_t weights,
                        std::optional<int64_t> capsules) {
    nlohmann::json run = collected_summary(recipe, 0.5);
    run["accuracy_quantized"] = accuracy;
    run["entropy"] = entropy;
    run["parameters_nonzero"] = weights;
    if (capsules) run["capsules_left"] = *capsules;
    const auto path = runs_.folder() / fmt::format("{}-{}.json", weights, accuracy);
    write_atomically(path, run.dump());
    return path.string();
  };
  const std::string best = file("mnist/best", 0.99, 2, 1000, 100),
                    beaten = file("mnist/beaten", 0.98, 3, 2000, 300),
                    few = file("mnist/few", 0.97, 1, 500, std::nullopt);
  const std::string csv = write("pareto", of({best, beaten, few}));
  EXPECT_THAT(csv, HasSubstr("best,0.99,2,,100,1000\n"));
  EXPECT_THAT(csv, HasSubstr("few,0.97,1,,,500\n"));
  const std::string svg =
      read_file(write_figure("pareto", of({best, beaten, few}), runs_.folder() / "again").svg);
  EXPECT_THAT(svg, HasSubstr(">capsules left<"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("effective parts"))) << "no run has them";
  // The dashed line joins `few` and `best`, and leaves `beaten` out: two points in each chart.
  EXPECT_THAT(svg, HasSubstr(">no run is better in both<"));
  EXPECT_THAT(svg, ::testing::Not(::testing::ContainsRegex("<path d=\"M[^\"L]*L[^\"L]*L")));
  EXPECT_THAT(svg, ::testing::ContainsRegex("<path d=\"M[^\"L]*L"));

  nlohmann::json other = collected_summary("fashion-mnist/x", 0.5);
  other["dataset"] = "fashion-mnist";
  const auto path = runs_.folder() / "other.json";
  write_atomically(path, other.dump());
  try {
    write_figure("pareto", of({best, path.string()}), runs_.folder().path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected one data set"));
  }
  // A network is measured with its effective parts.
  EXPECT_THAT(write("pareto", of({runs_.on_grid()})),
              ::testing::ContainsRegex("grid,[0-9.]+,[0-9.]+,[0-9.]+,[0-9]+,[0-9]+\n"));
}

TEST(RunLabels, SayWhatItTakesToTellRunsApart) {
  using Labels = std::vector<std::string>;
  const RunName plain{"runs/a/x", "mnist/a", 42, 9}, other{"runs/b/x", "mnist/b", 42, 9},
      seed{"runs/a43/x", "mnist/a", 43, 9}, epoch{"runs/a/x@epoch-0004", "mnist/a", 42, 4};
  EXPECT_EQ(run_labels({plain}), Labels{"mnist/a"});
  EXPECT_EQ(run_labels({plain, other}), (Labels{"a", "b"}));
  EXPECT_EQ(run_labels({plain, {"c", "svhn/a", 42, 9}}), (Labels{"mnist/a", "svhn/a"}));
  EXPECT_EQ(run_labels({plain, seed}), (Labels{"a, seed 42", "a, seed 43"}));
  EXPECT_EQ(run_labels({plain, epoch}), (Labels{"a, epoch 10", "a, epoch 5"}));
  EXPECT_EQ(run_labels({plain, seed, epoch}),
            (Labels{"a, seed 42, epoch 10", "a, seed 43, epoch 10", "a, seed 42, epoch 5"}));
  EXPECT_EQ(run_labels({plain, {"elsewhere/x", "mnist/a", 42, 9}}),
            (Labels{"a (runs/a)", "a (elsewhere)"}));
  EXPECT_EQ(run_labels({plain, plain}), (Labels{"a (x) 1", "a (x) 2"}));
}

TEST_F(Figures, AFigureOfOtherRunsIsNotOverwritten) {
  const std::string first = runs_.layered(), second = runs_.layered("other");
  const auto folder = runs_.folder() / "own";
  EXPECT_EQ(write_figure("keys", of({first}), folder).svg, folder / "keys.svg");
  EXPECT_EQ(write_figure("keys", of({second}), folder).svg, folder / "keys-2.svg");
  EXPECT_EQ(write_figure("keys", of({first, second}), folder).csv, folder / "keys-3.csv");
  EXPECT_EQ(write_figure("keys", of({first}), folder).svg, folder / "keys.svg");
  write_atomically(folder / "sparsity.svg", std::string_view("drawn by hand"));
  EXPECT_EQ(write_figure("sparsity", of({first}), folder).svg, folder / "sparsity-2.svg");
}

TEST_F(Figures, ObjectShareIsMeasuredAgainstTheMasks) {
  FigureOptions options = of({runs_.on_grid()});
  EXPECT_THROW(write_figure("object-share", options, runs_.folder().path()), Error);
  // Everything is object: all saliency lies on it.
  save_safetensors(masks_file(runs_.data()), {{"test", torch::ones({9, 18, 18}, torch::kByte)}});
  const std::string csv = write("object-share", options);
  EXPECT_THAT(csv, ::testing::ContainsRegex("all,9,(1|0\\.99999[0-9]*|1\\.0000[0-9]*),"));
}

TEST_F(Figures, FaithfulnessMeasuresEveryOrderOfPixelsAndCapsules) {
  save_safetensors(masks_file(runs_.data()), {{"test", torch::ones({9, 18, 18}, torch::kByte)}});
  const std::string csv = write("faithfulness", of({runs_.on_grid()}));
  for (const char* order : {"contributions", "couplings x activations", "stretched", "Grad-CAM",
                            "random", "every capsule the same"})
    EXPECT_THAT(csv, HasSubstr(order));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 5 * 11 + 1 + 3 * 51);
  // Without any capsule taken away the class is as long as with all of them put back; capsules that
  // carry much evidence are missed sooner than random ones.
  std::map<std::string, std::pair<double, double>> areas;  // order -> deletion, insertion
  std::istringstream lines(csv);
  std::string first_deletion, last_insertion;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream rest(line);
    for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
    if (cells.at(1) != "capsules") continue;
    areas[cells.at(2)] = {std::stod(cells.at(5)), std::stod(cells.at(7))};
    if (std::stod(cells.at(9)) == 0) first_deletion = cells.at(10);
    if (std::stod(cells.at(9)) == 1) {
      last_insertion = cells.at(11);
      EXPECT_NEAR(std::stod(first_deletion), std::stod(last_insertion), 1e-5) << cells.at(2);
    }
  }
  ASSERT_EQ(areas.size(), 3u);
  EXPECT_LT(areas["contributions"].first, areas["random"].first);
  EXPECT_GT(areas["contributions"].second, areas["random"].second);
  EXPECT_THROW(write_figure("faithfulness", of({runs_.layered()}), runs_.folder().path()), Error);
}

TEST_F(Figures, PastedImagesAreADataSetOfTheirOwn) {
  DataSplits objects;
  objects.class_names = {"cat", "dog", "fish"};
  DatasetOptions from;
  from.name = "folder";
  from.folder = runs_.data().string();
  from.validation = 3;
  const DataSplits loaded = load_dataset(from, runs_.folder().path());
  objects.train = loaded.train;
  objects.test = loaded.test;
  const std::filesystem::path file = runs_.folder() / "pasted.safetensors";
  write_pasted(objects, {.side = 30, .fragments = 4, .fragment_side = 5}, file);
  from.folder = file.string();
  const DataSplits pasted = load_dataset(from, runs_.folder().path());
  EXPECT_EQ(pasted.test.images.sizes(), (std::vector<int64_t>{9, 1, 30, 30}));
  EXPECT_EQ(load_masks(masks_file(file), "test").sizes(), (std::vector<int64_t>{9, 30, 30}));
  EXPECT_THROW(load_masks(masks_file(file), "train"), Error);
}

TEST_F(Figures, WrongUseIsToldInOneLine) {
  EXPECT_THROW(write_figure("salienzy", of({"x"}), runs_.folder().path()), UsageError);
  EXPECT_THROW(write_figure("saliency", of({}), runs_.folder().path()), UsageError);
  EXPECT_THROW(write_figure("saliency", of({"no-such-run"}), runs_.folder().path()), Error);
  const std::string layered = runs_.layered();
  EXPECT_THROW(write_figure("saliency", of({layered}), runs_.folder().path()), Error);
  EXPECT_THROW(write_figure("perturbations", of({layered}), runs_.folder().path()), Error);
  EXPECT_THROW(write_figure("saliency-views", of({runs_.on_grid()}), runs_.folder().path()), Error);
  FigureOptions outside = of({layered});
  outside.images = {{9, 9}};
  EXPECT_THROW(write_figure("parse-tree", outside, runs_.folder().path()), Error);
  FigureOptions too_many = of({layered});
  too_many.images = {{0, 1}};
  EXPECT_THROW(write_figure("parse-tree", too_many, runs_.folder().path()), Error);
}

TEST_F(Figures, EachPaperFigureHasItsName) {
  std::vector<int> covered(23, 0);
  for (const FigureKind& kind : figure_kinds()) {
    if (kind.paper.rfind("none", 0) == 0) continue;
    for (size_t at = 0; at < kind.paper.size(); at = kind.paper.find(", ", at) + 2) {
      const int number = std::stoi(kind.paper.substr(at));
      ASSERT_LT(static_cast<size_t>(number), covered.size());
      ++covered[static_cast<size_t>(number)];
      if (kind.paper.find(", ", at) == std::string::npos) break;
    }
  }
  for (size_t figure = 1; figure < covered.size(); ++figure)
    EXPECT_EQ(covered[figure], 1) << "figure " << figure;
}

}  // namespace
}  // namespace remcaps
