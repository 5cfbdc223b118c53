#include "remcaps/capsule/routing/scaled_distance.h"

#include "tests/capsule/numeric.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

TEST(ScaledDistanceRouting, ClampsVotesToTheLengthOfTheirChild) {
  // One iteration, one parent: the pose is the squashed vote.
  const Tensor children = torch::tensor({{{0.5, 0.0}}}, torch::kFloat64);
  Tensor weight = torch::zeros({1, 1, 2, 2}, torch::kFloat64);
  weight[0][0][0][0] = 8.0;  // a vote of length 4 from a child of length 0.5
  ScaledDistanceRouting options;
  options.iterations = 1;
  const Tensor poses = scaled_distance_routing(children, weight, {}, options).poses;
  expect_close(poses[0][0], squash(torch::tensor({0.5, 0.0}, torch::kFloat64)), 1e-9);
}

TEST(ScaledDistanceRouting, CouplesNineTenthsAtHalfTheMeanDistance) {
  // The definition of t: exp(t d_p) = 0.9 and J - 1 parents at d_o share 0.1.
  torch::manual_seed(1);
  ScaledDistanceRouting options;
  options.iterations = 2;
  options.mean = ScaledDistanceRouting::Mean::kSample;
  const Tensor children = random_doubles({1, 4, 3}), weight = random_doubles({4, 5, 2, 3});
  const RoutingResult result = scaled_distance_routing(children, weight, {}, options);

  ScaledDistanceRouting first = options;
  first.iterations = 1;
  const Tensor v = scaled_distance_routing(children, weight, {}, first).poses;
  Tensor votes = make_votes(children, weight);
  const Tensor length = votes.norm(2, -1, true);
  votes = votes / length * torch::minimum(length, children.norm(2, -1).view({1, 4, 1, 1}));
  const Tensor distance = (v.unsqueeze(1) - votes).norm(2, -1);
  const double d_o = distance.mean().item<double>();
  const double t = (std::log(0.9 * 4) - std::log(0.1)) / (0.5 * d_o - d_o);
  expect_close(result.coupling, torch::softmax(t * distance, 2), 1e-9);
  const double near = std::exp(t * 0.5 * d_o), far = std::exp(t * d_o);
  EXPECT_NEAR(near / (near + 4 * far), 0.9, 1e-9);
}

TEST(ScaledDistanceRouting, AWhollyPrunedMatrixVotesZeroWithFiniteGradients) {
  torch::manual_seed(2);
  for (const auto gradient : {RoutingGradient::kLast, RoutingGradient::kFull}) {
    ScaledDistanceRouting options;
    options.gradient = gradient;
    Tensor weight = torch::randn({4, 3, 5, 2});
    weight[1][2].zero_();
    weight[3].zero_();
    weight.requires_grad_();
    const Tensor children = torch::randn({2, 4, 2}, torch::requires_grad());
    const Tensor bias = torch::full({3, 5}, 0.1f, torch::requires_grad());
    const RoutingResult result = scaled_distance_routing(children, weight, bias, options);
    EXPECT_TRUE(torch::isfinite(result.coupling).all().item<bool>());
    result.poses.square().sum().backward();
    for (const Tensor& input : {weight, children, bias})
      EXPECT_TRUE(torch::isfinite(input.grad()).all().item<bool>());
  }
}

TEST(ScaledDistanceRouting, ANetworkPrunedToNothingStaysFinite) {
  const RoutingResult result = scaled_distance_routing(
      torch::randn({2, 4, 2}), torch::zeros({4, 3, 5, 2}), torch::zeros({3, 5}), {});
  EXPECT_EQ(result.poses.abs().max().item<float>(), 0.0f);
  expect_close(result.coupling.sum(2), torch::ones({2, 4}), 1e-6);
}

TEST(ScaledDistanceRouting, OneParentTakesEverything) {
  const RoutingResult result =
      scaled_distance_routing(torch::randn({2, 4, 2}), torch::randn({4, 1, 5, 2}), {}, {});
  EXPECT_TRUE((result.coupling == 1).all().item<bool>());
}

TEST(ScaledDistanceRouting, TheBatchMeanCouplesImagesAndTheSampleMeanDoesNot) {
  torch::manual_seed(3);
  const Tensor children =
      torch::randn({4, 6, 3}) * torch::tensor({1.f, 5.f, 0.2f, 1.f}).view({4, 1, 1});
  const Tensor weight = torch::randn({6, 3, 4, 3});
  for (const auto mean :
       {ScaledDistanceRouting::Mean::kBatch, ScaledDistanceRouting::Mean::kSample}) {
    ScaledDistanceRouting options;
    options.mean = mean;
    const Tensor all = scaled_distance_routing(children, weight, {}, options).poses;
    const Tensor one = scaled_distance_routing(children.narrow(0, 1, 1), weight, {}, options).poses;
    const double difference = testing::largest_difference(one[0], all[1]);
    if (mean == ScaledDistanceRouting::Mean::kSample)
      EXPECT_LT(difference, 1e-5);
    else
      EXPECT_GT(difference, 1e-4);
  }
}

TEST(ScaledDistanceRouting, PublishedGradientTakesAllButTheLastIterationAsConstant) {
  torch::manual_seed(4);
  const Tensor children = random_doubles({2, 4, 3}).requires_grad_();
  const Tensor weight = random_doubles({4, 3, 2, 3}).requires_grad_();
  const Tensor bias = random_doubles({3, 2}, 0.3).requires_grad_();
  const Tensor probe = random_doubles({2, 3, 2});
  const RoutingResult result = scaled_distance_routing(children, weight, bias, {});
  (result.poses * probe).sum().backward();
  const Tensor coupling = result.coupling.detach();
  const auto direct = [&] {
    Tensor votes = make_votes(children, weight);
    const Tensor length = votes.norm(2, -1, true);
    votes = votes / length * torch::minimum(length, children.norm(2, -1).view({2, 4, 1, 1}));
    return (squash((coupling.unsqueeze(-1) * votes).sum(1) + bias) * probe).sum();
  };
  for (const Tensor& input : {children, weight, bias})
    expect_close(input.grad(), finite_differences(direct, input), 1e-7);
}

TEST(ScaledDistanceRouting, FullGradientEqualsFiniteDifferences) {
  torch::manual_seed(5);
  const Tensor children = random_doubles({2, 3, 2}).requires_grad_();
  const Tensor weight = random_doubles({3, 3, 2, 2}).requires_grad_();
  const Tensor bias = random_doubles({3, 2}, 0.3).requires_grad_();
  const Tensor probe = random_doubles({2, 3, 2});
  ScaledDistanceRouting options;
  options.gradient = RoutingGradient::kFull;
  const auto loss = [&] {
    return (scaled_distance_routing(children, weight, bias, options).poses * probe).sum();
  };
  loss().backward();
  for (const Tensor& input : {children, weight, bias})
    expect_close(input.grad(), finite_differences(loss, input), 1e-6);
}

}  // namespace
}  // namespace remcaps
