#include "remcaps/pruning/lobster_pruner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <cmath>
#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/pruning/scheduled.h"
#include "remcaps/pruning/snip.h"
#include "tests/golden/golden_case.h"
#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using testing::pruner;
using testing::ToyNetwork;
using testing::values;

TEST(LobsterGolden, ShrinkMatchesThePublishedUpdate) {
  const TensorFile golden = testing::GoldenCase::rules();
  Tensor parameter = golden.load("lobster/p");
  lobster_shrink(parameter, golden.load("lobster/grad"), 1e-2);
  EXPECT_TRUE(torch::allclose(parameter, golden.load("lobster/out_lambda_1e-2"), 1e-6, 1e-9));
}

TEST(Lobster, ShrinksWhatTheLossDoesNotFeelAndSparesWhatItDoes) {
  Tensor parameter = torch::tensor({1.0f, -1.0f, 1.0f, 0.0f});
  lobster_shrink(parameter, torch::tensor({0.0f, 0.5f, -3.0f, 0.0f}), 0.1);
  EXPECT_THAT(values(parameter),
              ElementsAre(FloatNear(0.9f, 1e-6), FloatNear(-0.95f, 1e-6), 1.0f, 0.0f));
}

TEST(Lobster, ShrinksBiasesTooAndDecaysLambdaByEpoch) {
  ToyNetwork network({1, 1}, {1, 1, 1, 1});
  auto lobster = pruner("{strategy: lobster, lambda: 0.1, lambda_decay: 0.5}");
  {
    const torch::NoGradGuard no_grad;
    network.bias.fill_(1);
  }
  for (Tensor parameter : network.parameters())
    if (parameter.requires_grad()) parameter.mutable_grad() = torch::zeros_like(parameter);
  PruningContext context{network};
  context.epoch = 2;
  lobster->after_backward(context);
  const float expected = 1 - 0.1f * 0.25f;
  EXPECT_THAT(values(network.bias), ElementsAre(expected, expected));
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(expected, expected));
  EXPECT_THAT(values(network.scale), ElementsAre(1)) << "not in a prunable layer";
  EXPECT_THAT(values(network.frozen), ElementsAre(1, 1, 1));
}

// A step of Adam moves pruned weights; after_step() sets them to zero again. This also holds for a
// pruner that was restored from a checkpoint.
TEST(Lobster, PrunedWeightsStayZeroThroughStepsAndResume) {
  ToyNetwork network;
  {
    const torch::NoGradGuard no_grad;
    network.bias.fill_(1e-3);
    network.conv_bias().fill_(1e-3);
  }
  torch::optim::Adam adam(network.parameters(), torch::optim::AdamOptions(0.05));
  auto lobster = pruner("{strategy: lobster}");
  PruningContext context{network};
  // Only the two largest weights matter to this loss.
  context.validation_loss = [&] {
    return network.weight.abs().gt(0.4).sum().item<int64_t>() == 2 ? 1.0 : 2.0;
  };
  const auto epoch = [&](Pruner& pruner) {
    pruner.before_epoch(context);
    for (int step = 0; step < 4; ++step) {
      adam.zero_grad();
      network.forward(torch::ones({2, 1, 1, 1})).activations.sum().backward();
      pruner.after_backward(context);
      adam.step();
      pruner.after_step(context);
    }
  };
  lobster->before_epoch(context);
  const PruningReport report = lobster->after_epoch(context);
  EXPECT_TRUE(report.pruned);
  EXPECT_EQ(report.loss_before, 1);
  EXPECT_EQ(report.loss_after, 1);
  const auto zero = [&] {
    return std::vector<bool>{
        network.conv_weight()[0].item<float>() == 0, network.conv_weight()[1].item<float>() == 0,
        network.weight[0][0].item<float>() == 0,     network.weight[0][1].item<float>() == 0,
        network.weight[1][0].item<float>() == 0,     network.weight[1][1].item<float>() == 0};
  };
  const std::vector<bool> pruned = {true, true, true, true, false, false};
  EXPECT_EQ(zero(), pruned);
  epoch(*lobster);
  EXPECT_EQ(zero(), pruned);

  auto resumed = pruner("{strategy: lobster}");
  resumed->load_state(lobster->state());
  {
    const torch::NoGradGuard no_grad;
    network.weight[0][0] = 0.5;  // as if the weights on disk were older than the masks
  }
  epoch(*resumed);
  EXPECT_EQ(zero(), pruned);
  for (const Tensor& bias : {network.bias, network.conv_bias()})
    EXPECT_TRUE(bias.ne(0).all().item<bool>()) << "a bias was pruned";
}

TEST(Lobster, SearchesAfterEveryEpochByDefault) {
  ToyNetwork network;
  auto lobster = pruner("{strategy: lobster}");
  PruningContext context{network};
  context.validation_loss = [] { return 1.0; };
  for (context.epoch = 0; context.epoch < 3; ++context.epoch)
    EXPECT_GT(lobster->after_epoch(context).evaluations, 0);
}

TEST(Lobster, WaitsForAPlateauWhereAskedToAlsoAcrossAResume) {
  ToyNetwork network;
  const std::string recipe = "{strategy: lobster, patience_epochs: 2, plateau: 0}";
  auto lobster = pruner(recipe);
  PruningContext context{network};
  context.validation_loss = [] { return 1.0; };
  const auto searched = [&](double loss) {
    context.epoch_validation_loss = loss;
    return lobster->after_epoch(context).evaluations > 0;
  };
  EXPECT_FALSE(searched(1.0));
  EXPECT_FALSE(searched(0.9));
  EXPECT_FALSE(searched(0.95));
  const auto state = lobster->state();
  lobster = pruner(recipe);
  lobster->load_state(state);
  EXPECT_TRUE(searched(0.95));
  EXPECT_FALSE(searched(0.96)) << "the count starts again after a search";
}

TEST(Lobster, RefusesAStateThatNoTrainingGives) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto state = pruner("{strategy: lobster}")->state();
  for (const Tensor& plateau :
       {torch::tensor({kNan, 1.0}, torch::kDouble), torch::tensor({1.0, 1e300}, torch::kDouble),
        torch::tensor({1.0, 0.5}, torch::kDouble), torch::tensor({1.0, -1.0}, torch::kDouble),
        torch::tensor({1.0}, torch::kDouble), torch::ones({2, 1}, torch::kDouble),
        torch::tensor({1.0, 1.0}, torch::kFloat)}) {
    auto wrong = state;
    wrong.at("plateau") = plateau;
    EXPECT_THROW(pruner("{strategy: lobster}")->load_state(wrong), Error) << plateau;
  }
  auto none = state;
  none.erase("plateau");
  EXPECT_THROW(pruner("{strategy: lobster}")->load_state(none), Error);
  pruner("{strategy: lobster}")->load_state(state);
}

TEST(Lobster, SearchesOnlyWithinItsEpochsAndAboveItsAccuracy) {
  ToyNetwork network;
  auto lobster = pruner("{strategy: lobster, begin: 1, end: 2, min_accuracy: 0.5}");
  PruningContext context{network};
  context.validation_loss = [] { return 1.0; };
  std::vector<int64_t> searched;
  for (context.epoch = 0; context.epoch < 5; ++context.epoch) {
    context.epoch_validation_accuracy = context.epoch == 1 ? 0.5 : 0.6;
    if (lobster->after_epoch(context).evaluations > 0) searched.push_back(context.epoch);
  }
  EXPECT_THAT(searched, ElementsAre(2));
}

TEST(Lobster, WaitsUntilAccuracyIsAboveChance) {
  ToyNetwork network;
  auto lobster = make_pruner(LobsterOptions{.above_chance = 0.5});
  PruningContext context{network};
  context.validation_loss = [] { return 1.0; };
  context.chance_accuracy = 0.2;
  const auto searched = [&](double accuracy) {
    context.epoch_validation_accuracy = accuracy;
    return lobster->after_epoch(context).evaluations > 0;
  };
  EXPECT_FALSE(searched(0.2));
  EXPECT_FALSE(searched(0.59));
  EXPECT_TRUE(searched(0.61));
}

TEST(Lobster, SearchThatIsStoppedDoesNotCountItsEpoch) {
  ToyNetwork network;
  auto lobster = pruner("{strategy: lobster, patience_epochs: 1, plateau: 0}");
  PruningContext context{network};
  context.validation_loss = []() -> double { throw std::runtime_error("stop"); };
  context.epoch_validation_loss = 1;
  lobster->after_epoch(context);
  const auto before = lobster->state();
  context.epoch_validation_loss = 2;
  EXPECT_THROW(lobster->after_epoch(context), std::runtime_error);
  for (const auto& [name, tensor] : lobster->state())
    EXPECT_TRUE(torch::equal(tensor, before.at(name))) << name;
}

TEST(Pruner, OptionStructsMakeTheSectionOfARecipe) {
  const YAML::Node section =
      pruning_section("lobster", LobsterOptions{.lambda = 0.25, .tolerance = 0.5});
  EXPECT_EQ(section["strategy"].as<std::string>(), "lobster");
  EXPECT_EQ(section["lambda"].as<double>(), 0.25);
  EXPECT_EQ(section["tolerance"].as<double>(), 0.5);
  EXPECT_NE(dynamic_cast<LobsterPruner*>(pruner(YAML::Dump(section)).get()), nullptr);
  EXPECT_NE(dynamic_cast<SnipPruner*>(make_pruner(SnipOptions{}).get()), nullptr);
  EXPECT_NE(dynamic_cast<ScheduledPruner*>(make_pruner(ScheduledOptions{}).get()), nullptr);
}

TEST(Pruner, UnknownStrategiesAndKeysAreNamedWithTheNearest) {
  const auto message = [](const std::string& yaml) -> std::string {
    try {
      pruner(yaml);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("{strategy: lobter}"), ::testing::HasSubstr("lobster"));
  EXPECT_THAT(message("{strategy: lobster, lambada: 1}"), ::testing::HasSubstr("lambda"));
  EXPECT_THAT(message("{strategy: none, sparsity: 0.5}"), ::testing::HasSubstr("sparsity"));
}

TEST(Pruner, NoneDoesNothing) {
  ToyNetwork network;
  auto none = pruner("{}");
  PruningContext context{network};
  none->at_initialisation(context);
  none->before_epoch(context);
  none->after_step(context);
  EXPECT_FALSE(none->after_epoch(context).pruned);
  EXPECT_TRUE(none->state().empty());
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0.1f, -0.2f));
}

TEST(Pruner, UsersStrategyJoinsTheRegistry) {
  struct Custom : Pruner {};
  register_pruner("custom", [](ConfigSection&) { return std::make_unique<Custom>(); });
  EXPECT_NE(dynamic_cast<Custom*>(pruner("{strategy: custom}").get()), nullptr);
  EXPECT_THAT(pruner_names(), ::testing::Contains("custom"));
}

}  // namespace
}  // namespace remcaps
