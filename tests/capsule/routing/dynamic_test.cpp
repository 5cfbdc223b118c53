#include "remcaps/capsule/routing/dynamic.h"

#include "remcaps/base/error.h"
#include "remcaps/ops/quantize.h"
#include "tests/capsule/numeric.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

DynamicRouting plain(int64_t iterations = 3) {
  DynamicRouting options;
  options.iterations = iterations;
  options.kernels = KernelPath::kReference;
  return options;
}

// A routing layer in float64 whose inputs all need gradients.
struct Layer {
  Layer(int64_t batch, int64_t count, int64_t parents, int64_t child_dim, int64_t parent_dim)
      : children(random_doubles({batch, count, child_dim}).requires_grad_()),
        weight(random_doubles({count, parents, parent_dim, child_dim}).requires_grad_()),
        bias(random_doubles({parents, parent_dim}, 0.3).requires_grad_()),
        probe(random_doubles({batch, parents, parent_dim})) {}

  Tensor loss(const DynamicRouting& options) const {
    return (dynamic_routing(children, weight, bias, options).poses * probe).sum();
  }

  Tensor children, weight, bias, probe;
};

TEST(Votes, AreEachChildsPoseTimesItsMatrix) {
  torch::manual_seed(1);
  const Tensor children = random_doubles({2, 3, 4}), weight = random_doubles({3, 5, 6, 4});
  const Tensor votes = make_votes(children, weight);
  ASSERT_EQ(votes.sizes(), torch::IntArrayRef({2, 3, 5, 6}));
  expect_close(votes[1][2][4], torch::mv(weight[2][4], children[1][2]), 1e-12);
}

TEST(DynamicRouting, CouplingsOfEachChildSumToOneOnRandomShapes) {
  torch::manual_seed(2);
  for (int trial = 0; trial < 12; ++trial) {
    const auto sizes = torch::randint(1, 9, {5}, torch::kInt64);
    const auto at = [&](int i) { return sizes[i].item<int64_t>(); };
    const Layer layer(at(0), at(1), at(2), at(3), at(4));
    const RoutingResult result =
        dynamic_routing(layer.children, layer.weight, layer.bias, plain(1 + trial % 4));
    ASSERT_EQ(result.coupling.sizes(), torch::IntArrayRef({at(0), at(1), at(2)}));
    ASSERT_EQ(result.poses.sizes(), torch::IntArrayRef({at(0), at(2), at(4)}));
    expect_close(result.coupling.sum(2), torch::ones({at(0), at(1)}, torch::kFloat64), 1e-12);
    EXPECT_TRUE((result.poses.norm(2, -1) < 1).all().item<bool>());
  }
}

TEST(DynamicRouting, OneIterationGivesUniformCouplings) {
  torch::manual_seed(3);
  const Layer layer(2, 6, 4, 3, 5);
  const RoutingResult result = dynamic_routing(layer.children, layer.weight, layer.bias, plain(1));
  EXPECT_TRUE((result.coupling == 0.25).all().item<bool>());
}

TEST(DynamicRouting, AnImageDoesNotSeeItsNeighbours) {
  torch::manual_seed(4);
  const Layer layer(5, 6, 4, 3, 5);
  const RoutingResult all = dynamic_routing(layer.children, layer.weight, layer.bias, plain());
  for (int64_t b = 0; b < 5; ++b) {
    const RoutingResult one =
        dynamic_routing(layer.children.narrow(0, b, 1), layer.weight, layer.bias, plain());
    expect_close(one.poses[0], all.poses[b], 1e-12);
    expect_close(one.coupling[0], all.coupling[b], 1e-12);
  }
}

TEST(DynamicRouting, FollowsAgreementTowardsTheParentThatVotesConcentrateOn) {
  // Three children agree about parent 0 and contradict each other about parent 1.
  const Tensor children = torch::ones({1, 3, 1});
  Tensor weight = torch::zeros({3, 2, 2, 1});
  for (int64_t i = 0; i < 3; ++i) weight[i][0][0][0] = 1.0f;
  weight[0][1][0][0] = 1.0f;
  weight[1][1][0][0] = -1.0f;
  weight[2][1][1][0] = 1.0f;
  const RoutingResult result = dynamic_routing(children, weight, {}, plain());
  EXPECT_TRUE((result.coupling.select(2, 0) > 0.5).all().item<bool>());
  EXPECT_GT(result.poses[0][0].norm().item<float>(), result.poses[0][1].norm().item<float>());
}

TEST(DynamicRouting, BiasIsAddedInTheIterationsAskedFor) {
  torch::manual_seed(5);
  const Layer layer(2, 3, 4, 3, 2);
  DynamicRouting none = plain(), every = plain(), last = plain();
  none.bias = BiasUse::kNone;
  last.bias = BiasUse::kLast;
  const Tensor zero = torch::zeros_like(layer.bias);
  const auto run = [&](const Tensor& bias, const DynamicRouting& options) {
    return dynamic_routing(layer.children, layer.weight, bias, options);
  };
  expect_close(run(layer.bias, none).poses, run(zero, every).poses, 1e-14);
  // With the bias in the last iteration only, couplings are those without a bias.
  expect_close(run(layer.bias, last).coupling, run(zero, every).coupling, 1e-14);
  EXPECT_GT(testing::largest_difference(run(layer.bias, every).coupling, run(zero, every).coupling),
            1e-3);
  EXPECT_GT(testing::largest_difference(run(layer.bias, last).poses, run(zero, every).poses), 1e-3);
}

TEST(DynamicRouting, FullGradientEqualsFiniteDifferences) {
  torch::manual_seed(6);
  for (const auto bias : {BiasUse::kEvery, BiasUse::kLast}) {
    const Layer layer(2, 4, 3, 2, 3);
    DynamicRouting options = plain();
    options.gradient = RoutingGradient::kFull;
    options.bias = bias;
    layer.loss(options).backward();
    for (const Tensor& input : {layer.children, layer.weight, layer.bias})
      expect_close(input.grad(), finite_differences([&] { return layer.loss(options); }, input),
                   1e-7);
  }
}

TEST(DynamicRouting, PublishedGradientTakesCouplingsAsConstantsForPosesAndMatrices) {
  torch::manual_seed(7);
  const Layer layer(2, 4, 3, 2, 3);
  const DynamicRouting options = plain();
  layer.loss(options).backward();
  const Tensor coupling =
      dynamic_routing(layer.children, layer.weight, layer.bias, options).coupling.detach();
  const auto direct = [&] {
    const Tensor votes = make_votes(layer.children, layer.weight);
    return (squash((coupling.unsqueeze(-1) * votes).sum(1) + layer.bias) * layer.probe).sum();
  };
  expect_close(layer.children.grad(), finite_differences(direct, layer.children), 1e-7);
  expect_close(layer.weight.grad(), finite_differences(direct, layer.weight), 1e-7);
}

TEST(DynamicRouting, PublishedGradientOfTheBiasGoesThroughEveryIteration) {
  torch::manual_seed(8);
  for (const auto bias : {BiasUse::kEvery, BiasUse::kLast}) {
    const Layer layer(2, 4, 3, 2, 3);
    DynamicRouting options = plain();
    options.bias = bias;
    layer.loss(options).backward();
    // Votes do not depend on the bias: its gradient is the whole derivative.
    expect_close(layer.bias.grad(),
                 finite_differences([&] { return layer.loss(options); }, layer.bias), 1e-7);
  }
}

TEST(DynamicRouting, QuantizesTheLastCouplingsBeforeTheWeightedSum) {
  torch::manual_seed(9);
  const Layer layer(2, 4, 3, 2, 3);
  const Quantizer quantizer = Quantizer::uniform(6);
  const Tensor exact =
      dynamic_routing(layer.children, layer.weight, layer.bias, plain()).coupling.detach();
  const RoutingResult result =
      dynamic_routing(layer.children, layer.weight, layer.bias, plain(), {quantizer, true});
  const Tensor levels = quantize(exact, quantizer).to(torch::kFloat64);
  expect_close(result.coupling, levels, 0);
  const Tensor votes = make_votes(layer.children, layer.weight);
  expect_close(result.poses, squash((levels.unsqueeze(-1) * votes).sum(1) + layer.bias), 1e-12);
}

TEST(DynamicRouting, FusedPathAgreesWithThePlainOne) {
  torch::manual_seed(10);
  for (const auto gradient : {RoutingGradient::kLast, RoutingGradient::kFull})
    for (const auto bias_use : {BiasUse::kNone, BiasUse::kEvery, BiasUse::kLast})
      for (const bool quantize : {false, true}) {
        Tensor results[2], couplings[2], gradients[2];
        const Tensor start = torch::randn({7, 5, 6, 3}) * 0.5, poses = torch::randn({3, 7, 3});
        const Tensor probe = torch::randn({3, 5, 6});
        for (const auto kernels : {KernelPath::kReference, KernelPath::kFused}) {
          DynamicRouting options;
          options.gradient = gradient;
          options.bias = bias_use;
          options.kernels = kernels;
          RoutingRequest request;
          if (quantize) request.quantizer = Quantizer::uniform(11);
          const Tensor weight = start.clone().requires_grad_();
          const Tensor bias = torch::full({5, 6}, 0.1f, torch::requires_grad());
          const RoutingResult result = dynamic_routing(poses, weight, bias, options, request);
          (result.poses * probe).sum().backward();
          const int path = kernels == KernelPath::kFused;
          results[path] = result.poses.detach();
          couplings[path] = result.coupling.detach();
          gradients[path] = weight.grad();
        }
        expect_close(results[0], results[1], 1e-5);
        expect_close(couplings[0], couplings[1], 1e-5);
        expect_close(gradients[0], gradients[1], 1e-4);
      }
}

TEST(DynamicRouting, RefusesShapesThatDoNotBelongTogether) {
  EXPECT_THROW(dynamic_routing(torch::zeros({2, 3, 4}), torch::zeros({4, 5, 6, 4}), {}, plain()),
               Error);
  EXPECT_THROW(dynamic_routing(torch::zeros({2, 3, 4}), torch::zeros({3, 5, 6, 4}),
                               torch::zeros({6, 5}), plain()),
               Error);
}

}  // namespace
}  // namespace remcaps
