#include "remcaps/pruning/scheduled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using testing::pruner;
using testing::ToyNetwork;
using testing::values;

std::vector<int64_t> zeros_by_epoch(Pruner& pruner, ToyNetwork& network, int64_t epochs) {
  PruningContext context{network};
  pruner.at_initialisation(context);
  std::vector<int64_t> zeros;
  for (context.epoch = 0; context.epoch < epochs; ++context.epoch) {
    pruner.before_epoch(context);
    pruner.after_epoch(context);
    zeros.push_back(network.weight.eq(0).sum().item<int64_t>() +
                    network.conv_weight().eq(0).sum().item<int64_t>());
  }
  return zeros;
}

TEST(MagnitudePruning, FollowsTheCubicScheduleToItsTarget) {
  ScheduledOptions options;
  options.sparsity = 0.8;
  options.initial_sparsity = 0.2;
  options.begin = 2;
  options.end = 6;
  EXPECT_EQ(scheduled_sparsity(options, 1), 0);
  EXPECT_NEAR(scheduled_sparsity(options, 2), 0.2, 1e-12);
  EXPECT_NEAR(scheduled_sparsity(options, 4), 0.8 - 0.6 / 8, 1e-12);
  EXPECT_NEAR(scheduled_sparsity(options, 6), 0.8, 1e-12);
  EXPECT_NEAR(scheduled_sparsity(options, 60), 0.8, 1e-12);
}

TEST(MagnitudePruning, TakesTheSmallestWeightsOfAllLayersFirst) {
  ToyNetwork network({0.1f, -0.6f}, {0.3f, -0.4f, 0.2f, -0.5f});
  auto magnitude = pruner("{strategy: magnitude, sparsity: 0.5, end: 2}");
  EXPECT_THAT(zeros_by_epoch(*magnitude, network, 3), ElementsAre(3, 3, 3));
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0, -0.6f));
  EXPECT_THAT(values(network.weight), ElementsAre(0, -0.4f, 0, -0.5f));
}

TEST(MagnitudePruning, PrunedWeightsStayPrunedThroughResume) {
  ToyNetwork network;
  auto magnitude = pruner("{strategy: magnitude, sparsity: 0.5, end: 1}");
  zeros_by_epoch(*magnitude, network, 1);
  auto resumed = pruner("{strategy: magnitude, sparsity: 0.5, end: 1}");
  resumed->load_state(magnitude->state());
  {
    const torch::NoGradGuard no_grad;
    network.conv_weight().fill_(7);
    network.weight.fill_(7);
  }
  PruningContext context{network};
  resumed->after_step(context);
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0, 0));
  EXPECT_THAT(values(network.weight), ElementsAre(0, 7, 7, 7));
}

TEST(RandomPruning, PrunesAtInitialisationAndDependsOnTheSeedOnly) {
  const auto dead_for = [](const std::string& yaml, float scale) {
    ToyNetwork network({0.1f * scale, 1}, {1, 1, scale, 1});
    auto random = pruner(yaml);
    PruningContext context{network};
    context.seed = 3;
    random->at_initialisation(context);
    return torch::cat({network.conv_weight().flatten(), network.weight.flatten()}).eq(0);
  };
  const Tensor first = dead_for("{strategy: random, sparsity: 0.5}", 1);
  EXPECT_EQ(first.sum().item<int64_t>(), 3);
  EXPECT_TRUE(torch::equal(first, dead_for("{strategy: random, sparsity: 0.5}", 100)));
  EXPECT_TRUE(torch::equal(first, dead_for("{strategy: random, sparsity: 0.5, seed: 3}", 1)));
  int different = 0;
  for (int seed = 4; seed < 12; ++seed)
    different += !torch::equal(
        first,
        dead_for("{strategy: random, sparsity: 0.5, seed: " + std::to_string(seed) + "}", 1));
  EXPECT_GT(different, 0);
}

TEST(RandomPruning, OnAScheduleOnlyGrows) {
  ToyNetwork network;
  auto random = pruner("{strategy: random, sparsity: 1, end: 4}");
  const auto zeros = zeros_by_epoch(*random, network, 4);
  EXPECT_THAT(zeros, ElementsAre(3, 5, 6, 6));  // 1 - (1 - t/4)^3 of six weights, rounded
}

TEST(ScheduledPruning, RefusesAScheduleThatRunsBackwards) {
  EXPECT_THROW(pruner("{strategy: magnitude, begin: 9, end: 3}"), UsageError);
  EXPECT_THROW(pruner("{strategy: magnitude, sparsity: 0.1, initial_sparsity: 0.5}"), UsageError);
}

}  // namespace
}  // namespace remcaps
