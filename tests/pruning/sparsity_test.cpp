#include "remcaps/pruning/sparsity.h"

#include <gtest/gtest.h>

#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using testing::ToyNetwork;

TEST(Sparsity, CountsZerosOfPrunableLayersWithTheirBiasesAndOverall) {
  ToyNetwork network({0, -0.2f}, {0, 0, 0.5f, -0.6f});  // biases of 2 + 2 start at zero
  {
    const torch::NoGradGuard no_grad;
    network.bias.fill_(1);
  }
  const Sparsity sparsity = measure_sparsity(network);
  EXPECT_EQ(sparsity.prunable_parameters, 2 + 2 + 4 + 2 + 3);  // the frozen three as published
  EXPECT_EQ(sparsity.prunable_nonzero, 1 + 0 + 2 + 2 + 3);
  EXPECT_EQ(sparsity.parameters, 2 + 2 + 4 + 2 + 1);
  EXPECT_EQ(sparsity.nonzero, 1 + 0 + 2 + 2 + 1);
  EXPECT_DOUBLE_EQ(sparsity.published(), 5.0 / 13);
  EXPECT_DOUBLE_EQ(sparsity.overall(), 5.0 / 11);
}

TEST(Sparsity, TableHasOneRowPerLayer) {
  ToyNetwork network;
  const Sparsity sparsity = measure_sparsity(network);
  int64_t parameters = 0;
  std::vector<std::string> names;
  for (const auto& layer : sparsity.layers) {
    parameters += layer.parameters;
    names.push_back(layer.name);
    EXPECT_EQ(layer.prunable, layer.name != "scale");
  }
  EXPECT_EQ(parameters, 14);
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "conv", "class"}));
}

TEST(DeadStructures, CountsFiltersBlocksAndCapsulesWithoutAWeight) {
  ToyNetwork network({0, -0.2f}, {0, 0, 0.5f, 0});
  const DeadStructures dead = count_dead_structures(network);
  EXPECT_EQ(dead.filters, 2);
  EXPECT_EQ(dead.dead_filters, 1);
  EXPECT_EQ(dead.blocks, 4);
  EXPECT_EQ(dead.dead_blocks, 3);
  EXPECT_EQ(dead.capsules, 2);
  EXPECT_EQ(dead.dead_capsules, 1);
}

}  // namespace
}  // namespace remcaps
