#include "remcaps/pruning/masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include "remcaps/base/error.h"
#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using testing::ToyNetwork;
using testing::values;

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> result;
  for (const auto& tensor : tensors) result.push_back(tensor.name);
  return result;
}

TEST(PruningScope, WatchesTheTrainedWeightsOfPrunableLayersAndNoBias) {
  const ToyNetwork network;
  EXPECT_THAT(names(prunable_weights(network, {})), ElementsAre("conv.weight", "class.weight"));
  EXPECT_THAT(
      names(layer_parameters(network, {})),
      ElementsAre("conv.weight", "conv.bias", "class.weight", "class.bias", "class.frozen"));
}

TEST(PruningScope, ExclusionsAreOneKeyAwayFromTheirOpposite) {
  const ToyNetwork network;
  PruningScope scope;
  scope.exclude = {"*bias*", "class.weight"};
  EXPECT_THAT(names(prunable_weights(network, scope)), ElementsAre("conv.weight"));
  scope.exclude = {};
  EXPECT_THAT(names(prunable_weights(network, scope)),
              ElementsAre("conv.weight", "conv.bias", "class.weight", "class.bias"));
  scope.layers = {"cl*"};
  EXPECT_THAT(names(prunable_weights(network, scope)), ElementsAre("class.weight", "class.bias"));
}

TEST(PruningScope, LayerThatDoesNotExistIsAnErrorWithTheNearestName) {
  const ToyNetwork network;
  PruningScope scope;
  scope.layers = {"clas"};
  try {
    prunable_weights(network, scope);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean class?"));
  }
}

TEST(Masks, PrunedWeightsStayZeroWhateverTheOptimiserDoes) {
  ToyNetwork network;
  torch::optim::Adam adam(network.parameters(), torch::optim::AdamOptions(0.1));
  Masks masks;
  masks.bind(network, {});
  // Momentum that would carry the weight away from zero by itself.
  const auto step = [&] {
    adam.zero_grad();
    network.forward(torch::ones({4, 1, 1, 1})).activations.sum().backward();
    adam.step();
  };
  for (int k = 0; k < 3; ++k) step();
  {
    const torch::NoGradGuard no_grad;
    network.weight[0][1] = 0;
    network.conv_weight()[1] = 0;
  }
  masks.prune_zeros();
  EXPECT_EQ(masks.pruned(), 2);
  for (int k = 0; k < 5; ++k) {
    step();
    EXPECT_NE(network.weight[0][1].item<float>(), 0) << "the optimiser should have moved it";
    masks.apply();
    EXPECT_EQ(network.weight[0][1].item<float>(), 0);
    EXPECT_EQ(network.conv_weight()[1].item<float>(), 0);
    EXPECT_NE(network.weight[0][0].item<float>(), 0);
  }
}

TEST(Masks, BiasThatIsZeroIsNotPruned) {
  ToyNetwork network;  // its biases start at zero
  Masks masks;
  masks.bind(network, {});
  masks.prune_zeros();
  EXPECT_EQ(masks.pruned(), 0);
  {
    const torch::NoGradGuard no_grad;
    network.bias.fill_(0.7);
    network.weight[0][0] = 0;
  }
  masks.prune_zeros();
  masks.apply();
  EXPECT_THAT(values(network.bias), ElementsAre(0.7f, 0.7f));
}

TEST(Masks, SurviveACheckpoint) {
  ToyNetwork network;
  Masks masks;
  masks.bind(network, {});
  masks.keep_highest(torch::tensor({5, 0, 1, 4, 0, 3}, torch::kFloat), 3);
  const auto state = masks.state();

  ToyNetwork other;  // fresh weights, as after a crash between saving weights and state
  Masks restored;
  restored.load_state(state);
  restored.bind(other, {});
  EXPECT_EQ(restored.pruned(), 3);
  EXPECT_THAT(values(other.conv_weight()), ElementsAre(0.1f, 0));
  EXPECT_THAT(values(other.weight), ElementsAre(0, -0.4f, 0, -0.6f));
}

TEST(Masks, OfAnotherNetworkAreRefused) {
  ToyNetwork network;
  Masks masks;
  masks.load_state({{"mask/conv.weight", torch::ones({5}, torch::kUInt8)}});
  EXPECT_THROW(masks.bind(network, {}), Error);
}

TEST(Masks, KeepHighestNeverRevivesAndBreaksTiesByOrder) {
  ToyNetwork network;
  Masks masks;
  masks.bind(network, {});
  masks.keep_highest(torch::ones({6}), 4);
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0, 0));
  masks.keep_highest(torch::tensor({0, 0, 0, 0, 9, 9}, torch::kFloat), 2);
  EXPECT_EQ(masks.pruned(), 6);
}

}  // namespace
}  // namespace remcaps
