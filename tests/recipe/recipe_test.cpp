#include "remcaps/recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/ops/margin_loss.h"
#include "remcaps/recipe/context.h"
#include "tests/recipe/tiny_network.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;
using testing::ScopedVariable;
using testing::TemporaryFolder;
using testing::tiny_recipe;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Recipe, DefaultsAreThePublishedOnes) {
  const Recipe recipe = tiny_recipe();
  EXPECT_EQ(recipe.loss.m_plus, 0.9);
  EXPECT_EQ(recipe.loss.reconstruction, 0.0005);
  EXPECT_EQ(recipe.train.lr_decay, 0.99);
  EXPECT_EQ(recipe.train.patience, 200);
  EXPECT_EQ(recipe.quantize.levels, std::vector<int64_t>{11});
  EXPECT_FALSE(recipe.prunes());
}

TEST(Recipe, UnknownKeyNamesTheNearest) {
  EXPECT_THAT(error_of([] { tiny_recipe("{train: {epoch: 3}}"); }),
              HasSubstr("train.epoch is not a known key; did you mean epochs?"));
  EXPECT_THAT(error_of([] { tiny_recipe("{trian: {}}"); }), HasSubstr("did you mean train?"));
  EXPECT_THAT(error_of([] { tiny_recipe("{pruning: {strategy: lobster, lamda: 1}}"); }),
              HasSubstr("did you mean lambda?"));
}

TEST(Recipe, UnknownModelOptionIsRejectedWhenTheNetworkIsMade) {
  Recipe recipe = tiny_recipe("{model: {optoin: true}}");
  ModelContext context;
  EXPECT_THAT(error_of([&] { build_model(recipe, context); }),
              HasSubstr("model.optoin is not a known key; did you mean option?"));
}

TEST(Recipe, ValueOutOfRangeNamesKeyAndRange) {
  EXPECT_THAT(error_of([] { tiny_recipe("{train: {batch: 0}}"); }),
              HasSubstr("train.batch is 0; expected 1 to"));
  EXPECT_THAT(error_of([] { tiny_recipe("{precision: float16}"); }),
              HasSubstr("one of float32, tf32, bf16"));
}

TEST(Recipe, OverridesWinOverTheFileAndItsIncludes) {
  const TemporaryFolder folder;
  testing::register_tiny_network();
  write_atomically(folder / "base.yaml", "train: {lr: 0.5, batch: 7, epochs: 9}\n");
  write_atomically(folder / "own.yaml",
                   "include: base.yaml\nmodel: {name: tiny}\ntrain: {batch: 8, epochs: 10}\n");
  const Recipe recipe = load_recipe((folder / "own.yaml").string(), {"train.epochs=11"});
  EXPECT_EQ(recipe.train.lr, 0.5);
  EXPECT_EQ(recipe.train.batch, 8);
  EXPECT_EQ(recipe.train.epochs, 11);
}

TEST(Recipe, OldNamesOfKeysAreReadAndNewOnesWritten) {
  const std::string text =
      tiny_recipe("{pruning: {strategy: lobster, twt: 0.3, pwe: 4}}").to_text();
  EXPECT_THAT(text, HasSubstr("tolerance: 0.3"));
  EXPECT_THAT(text, HasSubstr("patience_epochs: 4"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("twt")));
  EXPECT_EQ(current_key("pruning.twt"), "pruning.tolerance");
  EXPECT_EQ(current_key("train.lr"), "train.lr");
}

TEST(Recipe, OldNamesOverrideNewOnesOfAnIncludedFile) {
  const TemporaryFolder folder;
  write_atomically(folder / "rem.yaml", "pruning: {strategy: lobster, tolerance: 0.1}\n");
  write_atomically(folder / "old.yaml", "include: rem.yaml\npruning: {twt: 0.2}\n");
  const auto tolerance = [&](const std::vector<std::string>& overrides) {
    return load_recipe((folder / "old.yaml").string(), overrides).pruning["tolerance"].as<double>();
  };
  EXPECT_EQ(tolerance({}), 0.2);
  EXPECT_EQ(tolerance({"pruning.twt=0.3"}), 0.3);
  EXPECT_EQ(tolerance({"pruning.tolerance=0.4"}), 0.4);
}

TEST(Recipe, BothNamesOfAKeyAreAnError) {
  EXPECT_THAT(
      error_of([] { tiny_recipe("{pruning: {strategy: lobster, twt: 0.1, tolerance: 0.1}}"); }),
      HasSubstr("pruning.twt is the old name of pruning.tolerance"));
}

TEST(Recipe, ResolvedTextReadsBackToTheSameText) {
  Recipe recipe = tiny_recipe(
      "{about: a test, dataset: {augment: {flip: true, contrast: [0.2, 1.8]}}, pruning: {strategy: "
      "lobster, tolerance: 0.1}, train: {lr: 0.00037}, quantize: {levels: [11, 6]}, "
      "metrics: {keep_epochs: [1, 5]}}");
  ModelContext context;
  build_model(recipe, context);
  const std::string text = recipe.to_text();
  EXPECT_THAT(text, HasSubstr("0.00037"));
  EXPECT_THAT(text, HasSubstr("option: false"));  // a default of the network, resolved
  const Recipe again = parse_recipe(YAML::Load(text), recipe.name);
  EXPECT_EQ(again.to_text(), text);
  EXPECT_TRUE(again.dataset.augment.flip);
  EXPECT_EQ(again.dataset.augment.shift, 1);
  EXPECT_TRUE(again.prunes());
}

// Every checkpoint holds its recipe, and a run writes thousands.
TEST(Recipe, WritingItTakesNoMemoryThatStays) {
  const ScopedVariable recipes("REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES);
  const Recipe recipe = load_recipe("fashion-mnist/eff-capsnet-rem");
  recipe.to_text();
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 100; ++i) recipe.to_text();
  EXPECT_LT(mallinfo2().uordblks, before + 100'000);
}

TEST(Recipe, CopiesAreApart) {
  const ScopedVariable recipes("REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES);
  const Recipe recipe = load_recipe("fashion-mnist/eff-capsnet-rem");
  const std::string text = recipe.to_text();
  Recipe copy = recipe;
  ModelContext context;
  context.input = {.channels = 1, .height = 28, .width = 28};
  build_model(copy, context);
  EXPECT_EQ(recipe.to_text(), text);
  EXPECT_NE(copy.to_text(), text) << "the network's defaults are in it now";
}

TEST(Recipe, IsFoundByNameAndAMisspeltNameSuggestsTheNearest) {
  const TemporaryFolder folder;
  const ScopedVariable recipes("REMCAPS_RECIPES", folder.path());
  make_folder(folder / "mnist");
  write_atomically(folder / "base.yaml", "train: {batch: 9}\n");
  write_atomically(folder / "mnist" / "dr-capsnet.yaml", "include: ../base.yaml\n");
  const Recipe recipe = load_recipe("mnist/dr-capsnet");
  EXPECT_EQ(recipe.name, "mnist/dr-capsnet");
  EXPECT_EQ(recipe.train.batch, 9);
  EXPECT_EQ(load_recipe("mnist/dr-capsnet", {"train.batch=3"}).name, "mnist/dr-capsnet");
  EXPECT_EQ(load_recipe("mnist/dr-capsnet", {"dataset.name=folder"}).name, "folder/dr-capsnet")
      << "it is another recipe with another data set";
  EXPECT_THAT(error_of([] { load_recipe("mnist/dr-capnet"); }),
              HasSubstr("did you mean mnist/dr-capsnet?"));
  EXPECT_THAT(recipe_names(), ::testing::Not(::testing::Contains("base")));
}

TEST(Recipe, DeepCapsMarginsSwitchAtTheGivenEpoch) {
  LossOptions loss;
  loss.switch_epoch = 100;
  EXPECT_EQ(loss.margin(99).m_plus, 0.9);
  EXPECT_EQ(loss.margin(100).m_plus, 0.95);
  EXPECT_EQ(loss.margin(100).m_minus, 0.05);
  EXPECT_EQ(loss.margin(100).lambda, 0.8);
}

TEST(Recipe, LearningRateDecaysPerEpochDownToItsFloor) {
  TrainOptions train;
  train.min_lr = 0.0005;
  EXPECT_DOUBLE_EQ(train.lr_at(0), 0.001);
  EXPECT_DOUBLE_EQ(train.lr_at(2), 0.001 * 0.99 * 0.99);
  EXPECT_DOUBLE_EQ(train.lr_at(1000), 0.0005);
}

TEST(Recipe, OneLevelServesAllRoutingLayersAndZeroLeavesOneAlone) {
  QuantizeOptions quantize;
  EXPECT_EQ(quantize.quantizers(3).size(), 3);
  quantize.levels = {0, 6};
  const auto two = quantize.quantizers(2);
  EXPECT_FALSE(two[0].has_value());
  EXPECT_EQ(two[1]->levels(), 6);
  EXPECT_THROW(quantize.quantizers(3), Error);
}

TEST(Recipe, EveryShippedRecipeBuildsItsNetwork) {
  const ScopedVariable recipes("REMCAPS_RECIPES", REMCAPS_SOURCE_RECIPES);
  const std::vector<std::string> names = recipe_names();
  ASSERT_GT(names.size(), 20);
  std::map<std::string, size_t> routing_layers;  // of each distinct network: many recipes share one
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    Recipe recipe = load_recipe(name);
    std::optional<ModelContext> context = known_context(recipe);
    if (!context) {  // pictures of one's own
      const int64_t side = recipe.dataset.image_size;
      ASSERT_GT(side, 0);
      DataSplits pictures;
      pictures.class_names = {"cat", "dog"};
      pictures.train.images = torch::zeros({2, 3, side, side}, torch::kUInt8);
      pictures.train.labels = torch::arange(2);
      context = model_context(recipe, pictures);
    }
    context->load_pretrained = false;
    const ImageShape input = context->input;
    const std::string network =
        fmt::format("{} {} {}x{}x{} {}", recipe.model, YAML::Dump(recipe.model_options),
                    input.channels, input.height, input.width, context->classes);
    if (routing_layers.count(network) == 0)
      routing_layers[network] = build_model(recipe, *context)->routing_layers().size();
    EXPECT_NO_THROW(recipe.quantize.quantizers(routing_layers[network]));
  }
}

TEST(StoredRecipe, KeepsTheNormEpsilonOfTheVersionThatWroteIt) {
  const auto epsilon = [](const std::string& model) {
    const Recipe recipe =
        parse_stored_recipe(YAML::Load("{model: {name: eff-capsnet" + model + "}}"), "stored");
    return recipe.model_options["norm_epsilon"].as<double>(-1);
  };
  EXPECT_EQ(epsilon(", norm: batch"), 1e-5);
  EXPECT_EQ(epsilon(", norm: instance"), 1e-6);
  EXPECT_EQ(epsilon(", norm: batch, norm_epsilon: 0.001"), 1e-3);
}

}  // namespace
}  // namespace remcaps
