#include "remcaps/runs/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "tests/recipe/tiny_network.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::tiny_recipe;

struct Saved {
  Recipe recipe = tiny_recipe();
  ModelContext context{.input = {1, 6, 6}, .classes = 3, .mean = {0.3}, .std = {0.2}};
  std::shared_ptr<CapsNet> model = build_model(recipe, context);

  WeightsInfo info() const { return {recipe, context, {"a", "b", "c"}, 7}; }
};

std::string load_error(CapsNet& model, const TensorMap& tensors) {
  try {
    load_weights(model, tensors, "w.safetensors");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(WeightsFile, CarriesAllThatIsNeededToUseIt) {
  const TemporaryFolder folder;
  Saved made;
  save_weights(folder / "w.safetensors", *made.model, made.info());
  const SafetensorsFile file(folder / "w.safetensors");
  const WeightsInfo info = read_weights_info(file);
  EXPECT_EQ(info.recipe.to_text(), made.recipe.to_text());
  EXPECT_EQ(info.class_names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(info.context.input.height, 6);
  EXPECT_EQ(info.context.classes, 3);
  EXPECT_EQ(info.epoch, 7);
  Recipe other_seed = made.recipe;
  other_seed.train.seed = 1;
  const auto other = build_model(other_seed, made.context);
  load_weights(*other, file.load_all(), "w.safetensors");
  for (const auto& [name, tensor] : weights_of(*made.model))
    EXPECT_TRUE(torch::equal(tensor, weights_of(*other).at(name))) << name;
}

TEST(WeightsFile, NamesEachKindOfDamage) {
  Saved made;
  const TensorMap before = [&] {
    TensorMap copy;
    for (const auto& [name, tensor] : weights_of(*made.model)) copy[name] = tensor.clone();
    return copy;
  }();
  TensorMap missing = before, wrong_shape = before, not_finite = before, extra = before;
  missing.erase("class.weight");
  wrong_shape["class.weight"] = torch::zeros({2, 2});
  not_finite["class.bias"] = before.at("class.bias").clone();
  not_finite["class.bias"][1] = std::nan("");
  extra["clas.weight"] = torch::zeros({1});
  EXPECT_THAT(load_error(*made.model, missing),
              HasSubstr("tensor class.weight of tiny is missing"));
  EXPECT_THAT(load_error(*made.model, wrong_shape),
              HasSubstr("class.weight has shape 2x2; tiny expects 12x36"));
  EXPECT_THAT(load_error(*made.model, not_finite),
              HasSubstr("1 of the 12 values of class.bias are not finite"));
  EXPECT_THAT(load_error(*made.model, extra), HasSubstr("clas.weight is no tensor of tiny"));
  // A refused file changes nothing.
  for (const auto& [name, tensor] : before)
    EXPECT_TRUE(torch::equal(tensor, weights_of(*made.model).at(name))) << name;
}

TEST(WeightsFile, NeedsARecipe) {
  const TemporaryFolder folder;
  save_safetensors(folder / "x.safetensors", {{"a", torch::ones({1})}});
  EXPECT_THROW(read_weights_info(SafetensorsFile(folder / "x.safetensors")), Error);
}

}  // namespace
}  // namespace remcaps
