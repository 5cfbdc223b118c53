#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/recipe/recipe.h"
#include "remcaps/report/reproduction.h"
#include "remcaps/report/table.h"
#include "tests/scoped_variable.h"

namespace remcaps {
namespace {

class PaperRecipes : public ::testing::Test {
 protected:
  const testing::ScopedVariable recipes_ = {"REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES};
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TEST_F(PaperRecipes, EveryArmOfEveryTableAndFigureHasOne) {
  for (const Reproduction& each : reproductions()) {
    for (const std::string& name : each.recipes) {
      SCOPED_TRACE(each.name + ": " + name);
      const Recipe recipe = load_recipe(name);
      EXPECT_EQ(recipe.name, name);
      EXPECT_EQ(recipe.dataset.name, name.substr(0, name.find('/')));
      EXPECT_EQ(recipe.prunes(), ends_with(name, "-rem") ||
                                     name.find("-rem-lambda-") != std::string::npos ||
                                     name.find("-rem-tolerance-") != std::string::npos ||
                                     name.find("-snip-") != std::string::npos);
      EXPECT_FALSE(recipe.about.empty());
      EXPECT_EQ(recipe.train.batch, 128);
      EXPECT_EQ(recipe.train.patience, 200);
    }
  }
}

TEST_F(PaperRecipes, ThoseThatPruneGroupsWaitUntilTheNetworkHasLearntSomething) {
  int found = 0;
  for (const std::string& name : recipe_names()) {
    const YAML::Node pruning = load_recipe(name).to_yaml()["pruning"];
    if (!pruning["groups"] || pruning["groups"].size() == 0) continue;
    ++found;
    EXPECT_GT(pruning["above_chance"].as<double>(), 0) << name;
  }
  EXPECT_GE(found, 3);
}

TEST_F(PaperRecipes, RemDiffersFromItsOtherArmInPruningOnly) {
  for (const std::string& name : recipe_names()) {
    if (!ends_with(name, "-rem")) continue;
    SCOPED_TRACE(name);
    YAML::Node rem = load_recipe(name).to_yaml();
    YAML::Node other = load_recipe(name.substr(0, name.size() - 4)).to_yaml();
    const YAML::Node pruning = rem["pruning"];
    EXPECT_EQ(pruning["strategy"].as<std::string>(), "lobster");
    EXPECT_EQ(pruning["lambda"].as<double>(), 1e-4);
    EXPECT_EQ(pruning["lambda_decay"].as<double>(), 0.99);
    EXPECT_EQ(pruning["patience_epochs"].as<int>(), -1);
    EXPECT_EQ(pruning["tolerance"].as<double>(), 0);
    const bool deepcaps = name.find("deepcaps") != std::string::npos;
    EXPECT_EQ(pruning["exclude"].size(), deepcaps ? 2u : 1u);
    const bool slow_start = name.rfind("affnist", 0) == 0 || name.rfind("smallnorb", 0) == 0;
    const bool own_pictures = name.rfind("folder", 0) == 0;
    EXPECT_EQ(pruning["min_accuracy"].as<double>(), slow_start ? 0.5 : 0);
    EXPECT_EQ(pruning["above_chance"].as<double>(), own_pictures ? 0.25 : 0);
    for (YAML::Node* node : {&rem, &other}) {
      node->remove("pruning");
      node->remove("about");
    }
    EXPECT_EQ(YAML::Dump(rem), YAML::Dump(other));
  }
}

TEST_F(PaperRecipes, LevelsAreThePublishedOnes) {
  const auto levels = [](const std::string& name) { return load_recipe(name).quantize.levels; };
  using Levels = std::vector<int64_t>;
  EXPECT_EQ(levels("mnist/dr-capsnet"), Levels{11});
  EXPECT_EQ(levels("mnist/gamma-capsnet-rem"), (Levels{11, 6}));
  EXPECT_EQ(levels("cifar10/deepcaps"), (Levels{0, 11}));
  EXPECT_EQ(levels("imagenette/eff-conv-capsnet-rem"), Levels{21});
  EXPECT_EQ(levels("tiny-imagenet/resnet18-capsnet"), Levels{128});
  EXPECT_EQ(load_recipe("tiny-imagenet/resnet18-capsnet").quantize.form, "bins");
}

}  // namespace
}  // namespace remcaps
