#include "remcaps/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

ConfigSection section_of(const std::string& yaml) {
  return ConfigSection(YAML::Load(yaml), "mnist/dr.yaml", "routing");
}

TEST(ConfigSection, KeepsDefaultsOfKeysThatAreNotGiven) {
  ConfigSection section = section_of("iterations: 5");
  int64_t iterations = 3;
  double eps = 1e-6;
  std::string gradient = "last";
  section.key("iterations", iterations, IntRange{1, 16});
  section.key("eps", eps, Range{0, 1});
  section.key("gradient", gradient, {"last", "full"});
  section.finish();
  EXPECT_EQ(iterations, 5);
  EXPECT_EQ(eps, 1e-6);
  EXPECT_EQ(gradient, "last");
}

TEST(ConfigSection, NamesTheKeyTheValueAndTheRange) {
  ConfigSection section = section_of("iterations: 0");
  int64_t iterations = 3;
  EXPECT_EQ(error_of([&] {
              section.key("iterations", iterations, IntRange{1, 16});
            }),
            "recipe mnist/dr.yaml: routing.iterations is 0; expected 1 to 16");
}

TEST(ConfigSection, RejectsAValueOfTheWrongKind) {
  ConfigSection section = section_of("iterations: many");
  int64_t iterations = 3;
  EXPECT_EQ(error_of([&] {
              section.key("iterations", iterations, IntRange{1, 16});
            }),
            "recipe mnist/dr.yaml: routing.iterations is many; expected a whole number");
}

TEST(ConfigSection, ReadsWholeNumbersInBaseTen) {
  ConfigSection section = section_of("{iterations: 010, levels: [011, 12], batch: 0x10}");
  int64_t iterations = 3, batch = 1;
  std::vector<int64_t> levels;
  section.key("iterations", iterations, IntRange{1, 16});
  section.key("levels", levels, IntRange{2, 256});
  EXPECT_EQ(iterations, 10);
  EXPECT_EQ(levels, (std::vector<int64_t>{11, 12}));
  EXPECT_EQ(error_of([&] {
              section.key("batch", batch, IntRange{1, 1024});
            }),
            "recipe mnist/dr.yaml: routing.batch is 0x10; expected a whole number");
}

TEST(ConfigSection, RejectsNotANumberOutsideEveryRange) {
  ConfigSection section = section_of("eps: .nan");
  double eps = 0;
  EXPECT_THAT(error_of([&] {
                section.key("eps", eps, Range{0, 1});
              }),
              HasSubstr("routing.eps is nan"));
}

TEST(ConfigSection, SuggestsTheNearestKnownKey) {
  ConfigSection section = section_of("iteration: 3");
  int64_t iterations = 3;
  section.key("iterations", iterations, IntRange{1, 16});
  EXPECT_EQ(error_of([&] { section.finish(); }),
            "recipe mnist/dr.yaml: routing.iteration is not a known key; did you mean iterations?");
}

TEST(ConfigSection, ListsAllowedNames) {
  ConfigSection section = section_of("gradient: half");
  std::string gradient = "last";
  EXPECT_THAT(error_of([&] {
                section.key("gradient", gradient, {"last", "full"});
              }),
              HasSubstr("expected one of last, full"));
}

TEST(ConfigSection, ResolvedValuesReadBackToTheSame) {
  ConfigSection section = section_of("rates: [0.1, 0.30000000000000004]\nlr: 1e-3");
  std::vector<double> rates;
  double lr = 0;
  bool flip = true;
  section.key("rates", rates, Range{0, 1});
  section.key("lr", lr, Range{0, 1});
  section.key("flip", flip);
  YAML::Emitter emitter;
  emitter << section.resolved();
  ConfigSection again(YAML::Load(emitter.c_str()), "again");
  std::vector<double> rates_again;
  double lr_again = 0;
  bool flip_again = false;
  again.key("rates", rates_again, Range{0, 1});
  again.key("lr", lr_again, Range{0, 1});
  again.key("flip", flip_again);
  again.finish();
  EXPECT_EQ(rates_again, rates);
  EXPECT_EQ(lr_again, lr);
  EXPECT_TRUE(flip_again);
}

TEST(ConfigSection, NestedSectionsCarryTheirPathIntoErrors) {
  ConfigSection section = section_of("inner: {depth: 9}");
  ConfigSection inner = section.section("inner");
  int64_t depth = 1;
  EXPECT_THAT(error_of([&] {
                inner.key("depth", depth, IntRange{1, 4});
              }),
              HasSubstr("routing.inner.depth is 9"));
}

TEST(YamlIncludes, OwnKeysOverrideIncludedOnesSectionBySection) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "base.yaml", "train: {batch: 128, lr: 0.001}\nlevels: [11]");
  write_atomically(folder / "own.yaml", "include: base.yaml\ntrain: {lr: 0.5}\nlevels: [6, 5]");
  const YAML::Node merged = load_yaml_with_includes((folder / "own.yaml").string());
  EXPECT_EQ(merged["train"]["batch"].as<int>(), 128);
  EXPECT_EQ(merged["train"]["lr"].as<double>(), 0.5);
  EXPECT_EQ(merged["levels"].size(), 2u);
  EXPECT_FALSE(merged["include"]);
}

TEST(YamlIncludes, ACircleIsAnErrorAndNotAHang) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a.yaml", "include: b.yaml");
  write_atomically(folder / "b.yaml", "include: a.yaml");
  EXPECT_THAT(error_of([&] { load_yaml_with_includes((folder / "a.yaml").string()); }),
              HasSubstr("deeper than 16"));
}

TEST(YamlIncludes, ASyntaxErrorNamesFileAndLine) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a.yaml", "train:\n  lr: [1, 2\n");
  EXPECT_THAT(error_of([&] { load_yaml_with_includes((folder / "a.yaml").string()); }),
              HasSubstr("a.yaml:"));
}

TEST(YamlIncludes, KeysThatAreNoNamesAreUsageErrorsWithTheirLine) {
  testing::TemporaryFolder folder;
  const auto path = (folder / "a.yaml").string();
  const auto usage_error = [&](const std::string& text) -> std::string {
    write_atomically(path, text);
    try {
      load_yaml_with_includes(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no usage error";
  };
  for (const char* key : {"[1, 2]", "{a: b}", "~"})
    EXPECT_EQ(usage_error(fmt::format("train:\n  lr: 1\n  ? {}\n  : 3\n", key)),
              fmt::format("{}:3: {} is no name of a key", path, key));
  EXPECT_EQ(usage_error("list:\n- {[1]: 2}\n"), path + ":2: [1] is no name of a key");
  for (const char* files : {"{}", "{a: b}", "[[a.yaml]]", "~"})
    EXPECT_EQ(usage_error(fmt::format("include: {}", files)),
              fmt::format("{}: include is {}; expected a file or a list of files", path, files));
}

TEST(YamlIncludes, AKeyGivenTwiceInOneFileIsAUsageErrorWithItsLine) {
  testing::TemporaryFolder folder;
  const auto path = (folder / "a.yaml").string();
  const auto error = [&](const std::string& text) {
    write_atomically(path, text);
    return error_of([&] { load_yaml_with_includes(path); });
  };
  EXPECT_EQ(error("model: {name: a}\nseed: 1\nmodel: {name: b}\n"),
            path + ":3: model is given a second time");
  EXPECT_EQ(error("train:\n  lr: 1\n  \"lr\": 2\n"), path + ":3: lr is given a second time");
  EXPECT_EQ(error("include: b.yaml\ninclude: c.yaml\n"),
            path + ":2: include is given a second time");
  // Another section, and an including file, may have a key of the same name.
  write_atomically(folder / "base.yaml", "train: {lr: 1}\nmodel: {lr: 2}");
  EXPECT_EQ(error("include: [base.yaml, base.yaml]\ntrain: {lr: 3}\n"), "no error");
}

TEST(ConfigSection, AKeyGivenTwiceIsAUsageError) {
  ConfigSection section = section_of("iterations: 3\niterations: 5");
  int64_t iterations = 1;
  section.key("iterations", iterations, IntRange{1, 16});
  EXPECT_EQ(error_of([&] { section.finish(); }),
            "recipe mnist/dr.yaml: routing.iterations is given a second time");
}

TEST(ConfigSection, AKeyThatIsNoNameIsAUsageError) {
  EXPECT_EQ(error_of([&] { section_of("? [1]\n: 2").finish(); }),
            "recipe mnist/dr.yaml: routing.[1] is not a known key");
}

TEST(SetYamlPath, AKeyThatIsNoNameIsAUsageError) {
  YAML::Node root = YAML::Load("train: {lr: 0.1}");
  EXPECT_EQ(error_of([&] { set_yaml_path(root, "train={[1]: 2}"); }),
            "--set train={[1]: 2}: [1] is no name of a key");
  EXPECT_EQ(error_of([&] { set_yaml_path(root, "train={lr: 1, lr: 2}"); }),
            "--set train={lr: 1, lr: 2}: lr is given a second time");
}

TEST(SetYamlPath, ReachesIntoSectionsAndMakesMissingOnes) {
  YAML::Node root = YAML::Load("train: {lr: 0.1, batch: 8}");
  set_yaml_path(root, "train.lr=0.2");
  set_yaml_path(root, "model.routing.iterations=1");
  EXPECT_EQ(root["train"]["lr"].as<double>(), 0.2);
  EXPECT_EQ(root["train"]["batch"].as<int>(), 8);
  EXPECT_EQ(root["model"]["routing"]["iterations"].as<int>(), 1);
  EXPECT_THROW(set_yaml_path(root, "no-equals-sign"), UsageError);
}

TEST(YamlPaths, GiveBackWhatSetYamlPathTakes) {
  const YAML::Node root = YAML::Load("train: {lr: 0.1}\nname: x\nquantize: {levels: [11, 6]}");
  const auto paths = yaml_paths(root);
  EXPECT_THAT(paths, ::testing::ElementsAre(::testing::Pair("name", "x"),
                                            ::testing::Pair("quantize.levels", "[11, 6]"),
                                            ::testing::Pair("train.lr", "0.1")));
  YAML::Node copy(YAML::NodeType::Map);
  for (const auto& [path, value] : paths) set_yaml_path(copy, path + "=" + value);
  EXPECT_EQ(yaml_paths(copy), paths);
}

std::string yaml_error(const std::string& text) {
  try {
    parse_yaml(text);
  } catch (const YAML::Exception& error) {
    return error.msg;
  }
  return "no error";
}

TEST(ParseYaml, TakesAliases) {
  const YAML::Node node = parse_yaml("a: &x {lr: 1}\nb: *x\nc: [*x, *x]");
  EXPECT_EQ(node["b"]["lr"].as<int>(), 1);
  EXPECT_EQ(node["c"].size(), 2u);
}

TEST(ParseYaml, AValueCannotContainItself) {
  for (const char* text : {"a: &a {x: *a}", "&a [*a]", "&a [b: [&c {d: *a}]]"})
    EXPECT_THAT(yaml_error(text), HasSubstr("contains it")) << text;
}

TEST(ParseYaml, AnAliasCountsAsWhatItStandsFor) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int k = 0; k < 9; ++k) bomb += fmt::format("*a{}{}", i - 1, k < 8 ? ", " : "]\n");
  }
  EXPECT_THAT(yaml_error(bomb), HasSubstr("more than 4096 values"));
}

TEST(ParseYaml, SizeAndDepthAreBounded) {
  EXPECT_THAT(yaml_error("a: " + std::string(2 << 20, 'x')), HasSubstr("more than 262144 bytes"));
  EXPECT_THAT(yaml_error(std::string(1 << 17, '[')), HasSubstr("more than 64 levels"));
  std::string keys;
  for (int i = 0; i < 5000; ++i) keys += fmt::format("k{}: 1\n", i);
  EXPECT_THAT(yaml_error(keys), HasSubstr("more than 4096 values"));
}

TEST(YamlIncludes, TheNumberOfFilesIsBounded) {
  testing::TemporaryFolder folder;
  for (int i = 0; i < 12; ++i)
    write_atomically(folder / fmt::format("{}.yaml", i),
                     fmt::format("include: [{}.yaml, {}.yaml]", i + 1, i + 1));
  write_atomically(folder / "12.yaml", "a: 1");
  EXPECT_THAT(error_of([&] { load_yaml_with_includes((folder / "0.yaml").string()); }),
              HasSubstr("more than 64 files"));
}

}  // namespace
}  // namespace remcaps
