#include "remcaps/training/checkpoint.h"

#include <gtest/gtest.h>

#include "remcaps/runs/weights.h"
#include "tests/recipe/tiny_network.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using testing::TemporaryFolder;
using testing::tiny_recipe;

struct Saved {
  Recipe recipe = tiny_recipe();
  ModelContext context{.input = {1, 6, 6}, .classes = 3, .mean = {0.3}, .std = {0.2}};
  std::shared_ptr<CapsNet> model = build_model(recipe, context);
};

TEST(Checkpoint, StateRestoresEveryNumber) {
  const TemporaryFolder folder;
  Saved made, other;
  const auto named = [](const CapsNet& model) {
    Adam::NamedParameters parameters;
    for (const auto& item : model.named_parameters())
      parameters.emplace_back(item.key(), item.value());
    return parameters;
  };
  Adam adam(named(*made.model), {}), restored(named(*other.model), {});
  for (const auto& [name, parameter] : adam.parameters())
    Tensor(parameter).mutable_grad() = torch::full_like(parameter, 0.1);
  adam.step(0.01);
  RunProgress progress{.epoch = 2,
                       .position = 3,
                       .step = 13,
                       .best_loss = 0.1 + 0.2,
                       .best_epoch = 1,
                       .seconds = 4.5};
  EpochSums sums = EpochSums::zeros(torch::kCPU);
  sums.loss.fill_(1.0 / 3);
  sums.correct.fill_(17);
  sums.images = 48;
  Pruner none;
  save_state(folder / "state.safetensors", *made.model, adam, none, progress, sums);

  EpochSums sums_again = EpochSums::zeros(torch::kCPU);
  const RunProgress again =
      load_state(folder / "state.safetensors", *other.model, restored, none, sums_again);
  EXPECT_EQ(again.epoch, 2);
  EXPECT_EQ(again.position, 3);
  EXPECT_EQ(again.step, 13);
  EXPECT_EQ(again.best_loss, 0.1 + 0.2);  // to the last bit
  EXPECT_EQ(again.best_epoch, 1);
  EXPECT_EQ(sums_again.loss.item<double>(), 1.0 / 3);
  EXPECT_EQ(sums_again.correct.item<int64_t>(), 17);
  EXPECT_EQ(sums_again.images, 48);
  EXPECT_EQ(restored.steps(), 1);
  for (const auto& [name, tensor] : adam.state())
    EXPECT_TRUE(torch::equal(tensor, restored.state().at(name))) << name;
  for (const auto& [name, tensor] : weights_of(*made.model))
    EXPECT_TRUE(torch::equal(tensor, weights_of(*other.model).at(name))) << name;
}

}  // namespace
}  // namespace remcaps
