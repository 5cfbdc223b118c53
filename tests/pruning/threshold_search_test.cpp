#include "remcaps/pruning/threshold_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using testing::ToyNetwork;
using testing::values;

// A loss that charges `cost[k]` for the k-th weight (convolution first) once it is zero.
std::function<double()> charge(ToyNetwork& network, std::vector<double> cost) {
  return [&network, cost] {
    std::vector<float> weights = values(network.conv_weight());
    for (const float value : values(network.weight)) weights.push_back(value);
    double loss = 1;
    for (size_t k = 0; k < weights.size(); ++k)
      if (weights[k] == 0) loss += cost[k];
    return loss;
  };
}

SearchResult search(ToyNetwork& network, const std::function<double()>& loss,
                    SearchOptions options = {}) {
  return search_threshold(prunable_weights(network, {}), magnitude_range(network), loss, options);
}

TEST(MagnitudeRange, CoversEveryParameterNamedWeightZerosIncluded) {
  ToyNetwork network({0, -0.2f}, {0.3f, -0.4f, 0.5f, -0.6f});
  const MagnitudeRange range = magnitude_range(network);
  EXPECT_EQ(range.low, 0);
  EXPECT_NEAR(range.mean, 2.0 / 6, 1e-7);
  EXPECT_NEAR(range.high, 0.6, 1e-7);
}

TEST(ThresholdSearch, PrunesUpToTheFirstWeightThatCosts) {
  ToyNetwork network;  // |w| = 0.1 ... 0.6
  const SearchResult found = search(network, charge(network, {0, 0, 0, 0.5, 0, 0}));
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0, 0));
  EXPECT_THAT(values(network.weight), ElementsAre(0, -0.4f, 0.5f, -0.6f));
  EXPECT_GT(found.threshold, 0.3);
  EXPECT_LE(found.threshold, 0.4 + 1e-6);
  EXPECT_EQ(found.loss, found.base_loss);
}

TEST(ThresholdSearch, NeverLeavesALossBeyondTheBound) {
  for (const double tolerance : {0.0, 0.05, 0.2, 1.0}) {
    ToyNetwork network;
    const auto loss = charge(network, {0.04, 0.04, 0.04, 0.1, 0.4, 2});
    const SearchResult found = search(network, loss, {.tolerance = tolerance});
    EXPECT_LE(loss(), 1 + tolerance) << "tolerance " << tolerance;
    EXPECT_EQ(loss(), found.loss);
    EXPECT_DOUBLE_EQ(found.bound, 1 + tolerance);
  }
}

TEST(ThresholdSearch, LeavesTheNetworkAloneWhereEveryWeightCosts) {
  ToyNetwork network;
  const SearchResult found = search(network, charge(network, {1, 1, 1, 1, 1, 1}));
  // Thresholds below the smallest weight prune nothing and keep the loss, so they are found.
  EXPECT_LT(found.threshold, 0.1);
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0.1f, -0.2f));
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0.5f, -0.6f));
}

TEST(ThresholdSearch, LossThatIsNotANumberIsAboveTheBound) {
  ToyNetwork network;
  const double nan = std::nan("");
  search(network, charge(network, {0, 0, nan, 0, 0, 0}));
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0, 0));
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0.5f, -0.6f));
}

TEST(ThresholdSearch, LossThatThrowsLeavesTheWeightsAsTheyWere) {
  ToyNetwork network;
  int64_t calls = 0;
  const auto stop = [&]() -> double {
    if (++calls == 3) throw std::runtime_error("stop");
    return 1.0;  // every threshold is within the bound
  };
  EXPECT_THROW(search(network, stop), std::runtime_error);
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0.1f, -0.2f));
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0.5f, -0.6f));
}

TEST(ThresholdSearch, DoesNotTouchBiasesOrFrozenTensors) {
  ToyNetwork network;
  {
    const torch::NoGradGuard no_grad;
    network.bias.fill_(1e-6);
    network.conv_bias().fill_(1e-6);
    network.frozen.fill_(1e-6);
  }
  search(network, [] { return 1.0; });
  for (const Tensor& tensor : {network.bias, network.conv_bias(), network.frozen})
    EXPECT_TRUE(tensor.ne(0).all().item<bool>());
  // The largest weight survives every threshold up to max|w|.
  EXPECT_THAT(values(network.weight), ElementsAre(0, 0, 0, -0.6f));
}

TEST(ThresholdSearch, StopsAfterTenRepeatsOfTheSameLoss) {
  ToyNetwork network;
  const SearchResult found = search(network, [] { return 1.0; });
  EXPECT_EQ(found.steps, 11);
}

// A smooth loss of a random network of random size. Its weights matter to different degrees.
struct RandomProblem {
  explicit RandomProblem(int64_t seed) {
    torch::manual_seed(seed);
    const int64_t count = 50 + 150 * seed;
    weights = {{"a.weight", torch::randn({count})}, {"b.weight", torch::randn({2 * count}) * 0.01}};
    for (const auto& weight : weights) {
      original.push_back(weight.tensor.clone());
      importance.push_back(torch::rand_like(weight.tensor) - (seed % 2 == 0 ? 0.0 : 0.3));
    }
  }
  double loss() {
    ++evaluations;
    double loss = 100;
    for (size_t k = 0; k < weights.size(); ++k)
      loss += (importance[k] * (weights[k].tensor - original[k]).square()).sum().item<double>();
    return loss;
  }
  MagnitudeRange range() const {
    const Tensor all = torch::cat({weights[0].tensor, weights[1].tensor}).abs();
    return {all.min().item<double>(), all.mean().item<double>(), all.max().item<double>()};
  }
  std::vector<NamedTensor> weights;
  std::vector<Tensor> original, importance;
  int64_t evaluations = 0;
};

TEST(ThresholdSearch, GivesTheSameAsThePlainBisectionWithFewerEvaluations) {
  for (int64_t seed = 0; seed < 8; ++seed) {
    for (const double tolerance : {0.0, 1e-4, 0.05}) {
      RandomProblem plain(seed), cheap(seed);
      const SearchResult a =
          search_threshold(plain.weights, plain.range(), [&] { return plain.loss(); },
                           {.tolerance = tolerance, .reuse = false});
      const SearchResult b = search_threshold(
          cheap.weights, cheap.range(), [&] { return cheap.loss(); }, {.tolerance = tolerance});
      EXPECT_EQ(a.threshold, b.threshold) << "seed " << seed << " tolerance " << tolerance;
      EXPECT_EQ(a.loss, b.loss);
      EXPECT_EQ(a.steps, b.steps);
      for (size_t k = 0; k < plain.weights.size(); ++k)
        EXPECT_TRUE(torch::equal(plain.weights[k].tensor, cheap.weights[k].tensor));
      EXPECT_EQ(a.evaluations, plain.evaluations);
      EXPECT_EQ(b.evaluations, cheap.evaluations);
      EXPECT_LT(b.evaluations, a.evaluations);
    }
  }
}

// The four capsule matrices in two groups, whose sizes are not those of their weights.
TEST(ThresholdSearch, WeightsGoWithTheirGroup) {
  ToyNetwork network;  // |w| = 0.1 ... 0.6
  std::vector<double> applied;
  const GroupedWeights groups{
      .sizes = {{"class.weight", torch::tensor({2.0f, 1.0f}).view({2, 1, 1, 1})}},
      .on_apply = [&](double threshold) { applied.push_back(threshold); }};
  EXPECT_EQ(groups.range().low, 1);
  EXPECT_EQ(groups.range().mean, 1.5);
  EXPECT_EQ(groups.range().high, 2);
  const auto loss = charge(network, {0, 0, 1, 0, 0, 0});
  const SearchResult found =
      search_threshold(prunable_weights(network, {}), groups.range(), loss, {}, groups);
  EXPECT_THAT(values(network.conv_weight()), ElementsAre(0.1f, -0.2f)) << "no group";
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0, 0));
  EXPECT_GT(found.threshold, 1);
  EXPECT_LE(found.threshold, 2);
  ASSERT_FALSE(applied.empty());
  EXPECT_EQ(applied.back(), found.threshold);
  EXPECT_EQ(loss(), found.loss);
}

TEST(ThresholdSearch, ThatFailsGivesTheGroupsBack) {
  ToyNetwork network;
  double applied = -1;
  const GroupedWeights groups{.on_apply = [&](double threshold) { applied = threshold; }};
  int64_t calls = 0;
  EXPECT_THROW(search_threshold(
                   prunable_weights(network, {}), magnitude_range(network),
                   [&]() -> double {
                     if (++calls == 3) throw std::runtime_error("stop");
                     return 1;
                   },
                   {}, groups),
               std::runtime_error);
  EXPECT_EQ(applied, 0);
  EXPECT_THAT(values(network.weight), ElementsAre(0.3f, -0.4f, 0.5f, -0.6f));
}

TEST(ThresholdSearch, PrefersAmongTheThresholdsWithinTheBound) {
  const auto zeros = [](ToyNetwork& network) {
    return network.weight.eq(0).sum().item<int64_t>() +
           network.conv_weight().eq(0).sum().item<int64_t>();
  };
  for (const int64_t wanted : {0, 3, 6}) {
    SCOPED_TRACE(wanted);
    ToyNetwork network;
    std::vector<int64_t> asked;
    const auto preference = [&] {
      asked.push_back(zeros(network));
      return std::abs(static_cast<double>(asked.back() - wanted));
    };
    // All but two weights may go.
    const SearchResult found = search(network, charge(network, {0, 0, 0, 0.01, 1, 1}),
                                      {.tolerance = 0.02, .prefer_low = preference});
    for (const int64_t count : asked) EXPECT_LE(count, 4) << "above the bound";
    const int64_t nearest = *std::min_element(asked.begin(), asked.end(), [&](auto a, auto b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    });
    EXPECT_EQ(zeros(network), nearest);
    EXPECT_EQ(charge(network, {0, 0, 0, 0.01, 1, 1})(), found.loss);
    EXPECT_EQ(std::set<int64_t>(asked.begin(), asked.end()).size(), asked.size())
        << "a set of weights was asked for twice";
    EXPECT_EQ(asked.back(), 0) << "the network as it was counts too";
  }
  ToyNetwork network;
  search(network, charge(network, {0, 0, 0, 0, 1, 1}), {.prefer_low = [] { return 1.0; }});
  EXPECT_EQ(zeros(network), 4) << "of equals the largest threshold";
}

TEST(ThresholdSearch, EvaluatesNoSetOfWeightsTwice) {
  RandomProblem problem(3);
  std::vector<int64_t> seen;
  search_threshold(
      problem.weights, problem.range(),
      [&] {
        const int64_t zeros =
            (problem.weights[0].tensor.eq(0).sum() + problem.weights[1].tensor.eq(0).sum())
                .item<int64_t>();
        EXPECT_EQ(std::count(seen.begin(), seen.end(), zeros), 0) << zeros << " zeros again";
        seen.push_back(zeros);
        return problem.loss();
      },
      {});
}

}  // namespace
}  // namespace remcaps
