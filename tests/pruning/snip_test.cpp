#include "remcaps/pruning/snip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using testing::ToyNetwork;
using testing::values;

TEST(Snip, KeepsTheWeightsTheFirstBatchIsMostSensitiveTo) {
  ToyNetwork network;  // 0.1, -0.2 | 0.3, -0.4, 0.5, -0.6
  SnipPruner snip({.sparsity = 0.5});
  PruningContext context{network};
  context.gradients_of_one_batch = [&] {
    network.conv_weight().mutable_grad() = torch::tensor({9.0f, 0.1f}).view({2, 1, 1, 1});
    network.weight.mutable_grad() =
        torch::tensor({0.0f, -2.0f, 1.0f, 0.5f}).view({2, 2, 1, 1});  // |wg| 0, 0.8, 0.5, 0.3
  };
  snip.at_initialisation(context);
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0.1f, 0));
  EXPECT_THAT(values(network.weight), ElementsAre(0, -0.4f, 0.5f, 0));
  for (const Tensor& parameter : network.parameters()) {
    const bool clean =
        !parameter.grad().defined() || parameter.grad().abs().sum().item<float>() == 0;
    EXPECT_TRUE(clean) << "gradients are left behind";
  }
}

TEST(Snip, MaskIsFixedFromThenOn) {
  ToyNetwork network;
  SnipPruner snip({.sparsity = 0.5});
  PruningContext context{network};
  context.gradients_of_one_batch = [&] {
    network.forward(torch::ones({2, 1, 1, 1})).activations.sum().backward();
  };
  snip.at_initialisation(context);
  const Tensor alive = network.weight.ne(0).clone();
  {
    const torch::NoGradGuard no_grad;
    network.weight.fill_(1);
    network.conv_weight().fill_(1);
  }
  snip.after_step(context);
  EXPECT_TRUE(torch::equal(network.weight.ne(0), alive));

  SnipPruner resumed({.sparsity = 0.5});
  resumed.load_state(snip.state());
  {
    const torch::NoGradGuard no_grad;
    network.weight.fill_(1);
  }
  resumed.before_epoch(context);
  EXPECT_TRUE(torch::equal(network.weight.ne(0), alive));
}

}  // namespace
}  // namespace remcaps
