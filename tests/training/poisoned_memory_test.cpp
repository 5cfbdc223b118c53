// Trains the networks of the recipes on a GPU whose free memory holds NaN before every step. If a
// kernel or a library reads memory that nobody has written, the losses become NaN.
#include "tests/ops/poisoned_memory.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/evaluation/evaluate.h"
#include "remcaps/recipe/context.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/compat.h"
#include "remcaps/training/step.h"
#include "remcaps/training/trainer.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

class PoisonedTrainingTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (kernel_devices().size() < 2) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override {
    set_tf32(false);
    at::globalContext().setBenchmarkCuDNN(false);
  }
};

// In batches of 128 the last one has 100, as MNIST's has.
Dataset random_images(const ModelContext& context) {
  constexpr int64_t kCount = 228;
  Dataset data;
  data.images = torch::randint(
      0, 256, {kCount, context.input.channels, context.input.height, context.input.width},
      torch::kUInt8);
  data.labels = torch::arange(kCount).remainder(context.classes);
  return data;
}

void expect_finite(const CapsNet& model) {
  for (const auto& item : model.named_parameters())
    EXPECT_TRUE(torch::isfinite(item.value()).all().item<bool>()) << item.key();
  for (const auto& item : model.named_buffers())
    EXPECT_TRUE(torch::isfinite(item.value()).all().item<bool>()) << item.key();
}

TEST_P(PoisonedTrainingTest, StepsAndEvaluationsStayFinite) {
  const torch::Device device(torch::kCUDA, 0);
  const std::string path = std::string(REMCAPS_SOURCE_RECIPES) + "/" + GetParam() + ".yaml";
  Recipe recipe = load_recipe(path, {"precision=bf16"});
  apply_runtime_options(recipe);
  const ModelContext known = known_context(recipe).value();
  torch::manual_seed(1);
  const auto model = build_model(recipe, known);
  model->to(device);
  TrainingStep step(recipe, *model, device);
  const BatchSource source(random_images(known), recipe.dataset.augment, device);
  // Twice: in the first epoch cuDNN's search leaves little of the memory that was filled.
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    EpochSums sums = EpochSums::zeros(device);
    PruningContext context{.model = *model, .epoch = epoch};
    model->train();
    for (int64_t position = 0; position < source.batches(recipe.train.batch); ++position) {
      SCOPED_TRACE(::testing::Message() << "epoch " << epoch << ", step " << position);
      const Batch batch = source.training_batch(position, recipe.train.batch, /*seed=*/1,
                                                static_cast<uint64_t>(epoch));
      fill_free_memory(kPoison);
      step.run(batch, position, context, sums);
      ASSERT_TRUE(std::isfinite(sums.loss.item<double>()));
      expect_finite(*model);
    }
    fill_free_memory(kPoison);
    const Evaluation result = evaluate(*model, source, evaluation_options(recipe, epoch, device));
    EXPECT_TRUE(std::isfinite(result.loss)) << "evaluation after epoch " << epoch;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, PoisonedTrainingTest,
                         ::testing::Values("mnist/dr-capsnet", "mnist/gamma-capsnet",
                                           "mnist/deepcaps", "cifar10/dr-capsnet",
                                           "cifar10/eff-capsnet"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '/' || c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace remcaps
