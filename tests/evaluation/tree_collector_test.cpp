#include "remcaps/evaluation/tree_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/ops/quantize.h"
#include "tests/golden/golden_case.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Stands for a trained network: its routing layers and nothing else.
class Described : public CapsNet {
 public:
  Described(int64_t classes, std::vector<RoutingLayer> layers)
      : CapsNet("described", {}, classes), layers_(std::move(layers)) {}
  Forward forward(const Tensor&, const ForwardOptions&) override { return {}; }
  std::vector<RoutingLayer> routing_layers() const override { return layers_; }
  std::vector<LayerCost> costs() const override { return {}; }
  std::vector<std::string> prunable_layers() const override { return {}; }

 private:
  std::vector<RoutingLayer> layers_;
};

RoutingTrace traced(Tensor coupling, Tensor child_activations = {}) {
  RoutingTrace result;
  result.coupling = std::move(coupling);
  result.child_activations = std::move(child_activations);
  return result;
}

/// A forward pass whose prediction is `predicted`.
Forward forward_of(std::vector<RoutingTrace> traces, const Tensor& predicted, int64_t classes) {
  Forward forward;
  forward.activations = torch::one_hot(predicted, classes).to(torch::kFloat);
  forward.routings = std::move(traces);
  return forward;
}

template <typename T>
std::vector<T> to_vector(const Tensor& tensor) {
  return {tensor.data_ptr<T>(), tensor.data_ptr<T>() + tensor.numel()};
}

TEST(TreeCollector, ReportsTheEffectivePartsOfEachClass) {
  const Described network(2, {{"class", 3, 2, 1, false}});
  TreeCollector collector(network, {Quantizer::uniform(11)});
  RoutingTrace trace = traced(torch::full({3, 3, 2}, 0.5), torch::ones({3, 3}));
  // Contributions to class 0 of the first two images: 4, 3, 3 and 9, 1, -5; of the third to class
  // 1.
  trace.contribution =
      torch::tensor({4., 0., 3., 0., 3., 0., 9., 0., 1., 0., -5., 0., 0., 1., 0., 1., 0., 1.})
          .view({3, 3, 2});
  trace.bias_contribution = torch::zeros({3, 2});
  const Tensor predicted = torch::tensor({0, 0, 1}, torch::kLong);
  collector.add(forward_of({trace}, predicted, 2), predicted);
  const ParseTreeReport report = collector.report();
  ASSERT_TRUE(report.parts.has_value());
  EXPECT_EQ(report.parts->capsules, 3);
  EXPECT_THAT(report.parts->half_per_class, ElementsAre(1.5, 2));
  EXPECT_NEAR(report.parts->half, 5.0 / 3, 1e-12);
  EXPECT_NEAR(report.parts->spread_per_class[1], 3, 1e-9);
}

TEST(TreeCollectorGolden, DictionaryMatchesThePublishedOne) {
  const TensorFile golden = testing::GoldenCase::rules();
  const Tensor couplings = golden.load("dictionary/couplings");  // [400, 3, 5]
  const Tensor predicted = golden.load("dictionary/predicted");
  const Quantizer quantizer = Quantizer::uniform(11);
  const int64_t classes = couplings.size(2);
  const Described network(classes, {{"class", couplings.size(1), classes, 3, false}});
  for (const bool already_quantized : {false, true}) {
    TreeCollector collector(network, {quantizer});
    for (int64_t begin = 0; begin < couplings.size(0); begin += 128) {
      Tensor batch = couplings.slice(0, begin, begin + 128);
      if (already_quantized) batch = quantize(batch, quantizer);
      const Tensor classes_of = predicted.slice(0, begin, begin + 128);
      collector.add(forward_of({traced(batch)}, classes_of, classes), classes_of);
    }
    const ParseTreeReport report = collector.report();
    const LayerTrees& trees = report.last();
    EXPECT_THAT(trees.keys_per_class,
                ElementsAreArray(to_vector<int64_t>(golden.load("dictionary/keys_per_class"))));
    EXPECT_THAT(report.samples_per_class,
                ElementsAreArray(to_vector<int64_t>(golden.load("dictionary/samples_per_class"))));
    const auto expected = to_vector<double>(golden.load("dictionary/entropy_per_class"));
    for (size_t j = 0; j < expected.size(); ++j)
      EXPECT_NEAR(trees.entropy_per_class[j], expected[j], 1e-9);
    EXPECT_NEAR(trees.entropy, golden.load("dictionary/entropy").item<double>(), 1e-9);
    EXPECT_EQ(report.accuracy_quantized, 1);
  }
}

TEST(TreeCollector, UniformCouplingsHaveEntropyExactlyZero) {
  // One routing iteration leaves every coupling at 1/J.
  const Described network(10, {{"class", 20, 10, 1, false}});
  for (const int64_t levels : {2, 6, 11, 21, 128}) {
    TreeCollector collector(network, {Quantizer::uniform(levels)});
    const Tensor predicted = torch::randint(10, {50}, torch::kLong);
    collector.add(
        forward_of({traced(torch::softmax(torch::zeros({50, 20, 10}), 2))}, predicted, 10),
        predicted);
    const LayerTrees trees = collector.report().last();
    for (const double entropy : trees.entropy_per_class) EXPECT_EQ(entropy, 0);
    for (const int64_t keys : trees.keys_per_class) EXPECT_LE(keys, 1);
    for (const int64_t varying : trees.varying_per_class) EXPECT_EQ(varying, 0);
    EXPECT_EQ(trees.key_couplings, 20);
  }
}

TEST(TreeCollector, VaryingCouplingsAreThoseWhoseLevelIsNotTheSameInAllImagesOfAClass) {
  torch::manual_seed(7);
  for (const int64_t levels : {2, 11, 16, 17, 128}) {
    for (const int64_t children : {1, 6, 13}) {
      SCOPED_TRACE(fmt::format("K = {}, {} children", levels, children));
      const Described network(4, {{"class", children, 4, 3, false}});
      const Quantizer quantizer = Quantizer::uniform(levels);
      TreeCollector collector(network, {quantizer});
      // Every second child hardly varies; class 3 is never predicted.
      const Tensor spread = torch::tensor({0.05f, 3.0f}).repeat({(children + 1) / 2});
      const Tensor logits =
          torch::randn({30, children, 4}) * spread.slice(0, 0, children).unsqueeze(1);
      const Tensor couplings = torch::softmax(logits, 2);
      const Tensor predicted = torch::randint(3, {30}, torch::kLong);
      for (const int64_t begin : {0, 16})
        collector.add(forward_of({traced(couplings.slice(0, begin, begin + 16))},
                                 predicted.slice(0, begin, begin + 16), 4),
                      predicted.slice(0, begin, begin + 16));
      const LayerTrees trees = collector.report().last();
      const Tensor indices = level_indices(couplings, quantizer);
      for (int64_t j = 0; j < 4; ++j) {
        const Tensor of_class = indices.select(2, j).index({predicted == j});  // [n, I]
        const int64_t expected =
            of_class.size(0) == 0 ? 0 : of_class.ne(of_class[0]).any(0).sum().item<int64_t>();
        EXPECT_EQ(trees.varying_per_class[j], expected) << j;
      }
    }
  }
}

TEST(TreeCollector, KeyIsTheColumnOfThePredictedClassRightOrWrong) {
  const Described network(2, {{"class", 2, 2, 3, false}});
  TreeCollector collector(network, {Quantizer::uniform(11)});
  // Two images predicted as class 0 that differ in the column of class 1 only, and one of class 1.
  const Tensor couplings = torch::tensor({0.3f, 0.7f, 0.2f, 0.8f,  //
                                          0.3f, 0.1f, 0.2f, 0.1f,  //
                                          0.9f, 0.1f, 0.5f, 0.5f})
                               .view({3, 2, 2});
  const Tensor predicted = torch::tensor({0, 0, 1}, torch::kLong);
  const Tensor labels = torch::tensor({0, 1, 1}, torch::kLong);
  collector.add(forward_of({traced(couplings)}, predicted, 2), labels);
  const ParseTreeReport report = collector.report();
  EXPECT_THAT(report.last().keys_per_class, ElementsAre(1, 1));
  EXPECT_NEAR(report.accuracy_quantized, 2.0 / 3, 1e-12);
  ASSERT_EQ(report.most_frequent[0].size(), 1u);
  EXPECT_EQ(report.most_frequent[0][0].count, 2);
  EXPECT_THAT(report.most_frequent[0][0].levels, ElementsAre(3, 2));
  EXPECT_THAT(report.most_frequent[1][0].levels, ElementsAre(1, 5));
}

TEST(TreeCollector, HiddenLayersCountWholeMatricesWithinThePredictedClass) {
  const Described network(2, {{"hidden", 2, 3, 3, false}, {"class", 3, 2, 3, false}});
  TreeCollector collector(network, {Quantizer::uniform(11), Quantizer::uniform(6)});
  Tensor hidden = torch::full({4, 2, 3}, 0.3f);
  hidden[1][1][2] = 0.4f;  // differs from image 0, same class
  const Tensor predicted = torch::tensor({0, 0, 1, 1}, torch::kLong);
  collector.add(forward_of({traced(hidden), traced(torch::full({4, 3, 2}, 0.5f))}, predicted, 2),
                predicted);
  const ParseTreeReport report = collector.report();
  EXPECT_THAT(report.layers[0].keys_per_class, ElementsAre(2, 1));
  EXPECT_THAT(report.layers[0].entropy_per_class, ElementsAre(1, 0));
  EXPECT_EQ(report.layers[0].entropy, 0.5);
  EXPECT_EQ(report.layers[0].entropy_std, 0.5);
  EXPECT_EQ(report.layers[0].median_keys, 1.5);
  EXPECT_THAT(report.layers[1].keys_per_class, ElementsAre(1, 1));
  EXPECT_EQ(report.layers[1].levels, 6);
}

TEST(TreeCollector, ConvolutionalLayersAreKeysToo) {
  const Described network(2, {{"conv", 4, 3, 3, true}, {"class", 3, 2, 3, false}});
  TreeCollector collector(network, {Quantizer::uniform(21), Quantizer::uniform(21)});
  Tensor windows = torch::full({2, 5, 4, 3}, 0.3f);  // [B, P, I_window, J]
  windows[1][4][3][2] = 0.9f;
  const Tensor predicted = torch::zeros({2}, torch::kLong);
  collector.add(forward_of({traced(windows), traced(torch::full({2, 15, 2}, 0.5f))}, predicted, 2),
                predicted);
  EXPECT_THAT(collector.report().layers[0].keys_per_class, ElementsAre(2, 0));
}

TEST(TreeCollector, LayerWithoutQuantizerHasNoDictionaryButTheLastOneNeedsOne) {
  const Described network(2, {{"hidden", 2, 3, 3, false}, {"class", 3, 2, 3, false}});
  TreeCollector collector(network, {std::nullopt, Quantizer::uniform(11)});
  const Tensor predicted = torch::zeros({1}, torch::kLong);
  collector.add(
      forward_of({traced(torch::rand({1, 2, 3})), traced(torch::rand({1, 3, 2}))}, predicted, 2),
      predicted);
  EXPECT_EQ(collector.report().layers[0].levels, 0);
  EXPECT_TRUE(collector.report().layers[0].keys_per_class.empty());
  EXPECT_THROW(TreeCollector(network, {Quantizer::uniform(11), std::nullopt}), Error);
  EXPECT_THROW(TreeCollector(network, {Quantizer::uniform(11)}), Error);
}

TEST(TreeCollector, ClampedCouplingsAreCounted) {
  const Described network(2, {{"class", 2, 2, 3, false}});
  TreeCollector collector(network, {Quantizer::uniform(11)});
  const Tensor predicted = torch::zeros({1}, torch::kLong);
  RoutingTrace one = traced(torch::rand({1, 2, 2}));
  one.clamped = 3;
  collector.add(forward_of({one}, predicted, 2), predicted);
  collector.add(forward_of({one}, predicted, 2), predicted);
  EXPECT_EQ(collector.report().last().clamped, 6);
  EXPECT_EQ(collector.report().last().couplings, 8);
}

TEST(TreeCollector, TScoreIsOneForOneHotCouplingsAndZeroForUniformOnes) {
  const Described network(4, {{"class", 3, 4, 3, false}});
  const Tensor predicted = torch::zeros({2}, torch::kLong);
  const auto score = [&](const Tensor& coupling) {
    TreeCollector collector(network, {Quantizer::uniform(11)});
    collector.add_unquantized(forward_of({traced(coupling)}, predicted, 4));
    return *collector.report().last().t_score;
  };
  EXPECT_NEAR(score(torch::full({2, 3, 4}, 0.25f)), 0, 1e-6);
  EXPECT_NEAR(score(torch::one_hot(torch::randint(4, {2, 3}, torch::kLong), 4).to(torch::kFloat)),
              1, 1e-6);
  EXPECT_NEAR(score(torch::tensor({0.5f, 0.5f, 0.0f, 0.0f}).expand({2, 3, 4})), 0.5, 1e-6);
}

TEST(TreeCollector, DScoreIsTheLargestSpreadOfAParentOverTheImages) {
  const Described network(2, {{"hidden", 3, 2, 3, false}, {"class", 2, 2, 3, false}});
  TreeCollector collector(network, {Quantizer::uniform(11), Quantizer::uniform(11)});
  const auto add = [&](const std::vector<float>& hidden_norms) {
    const Tensor children = torch::tensor(hidden_norms).view({2, 2});
    collector.add_unquantized(
        forward_of({traced(torch::rand({2, 3, 2})), traced(torch::rand({2, 2, 2}), children)},
                   torch::zeros({2}, torch::kLong), 2));
  };
  add({0.1f, 0.5f, 0.2f, 0.5f});
  add({0.3f, 0.5f, 0.4f, 0.5f});
  const ParseTreeReport report = collector.report();
  EXPECT_NEAR(*report.layers[0].d_score, std::sqrt(0.0125), 1e-6);
  EXPECT_NEAR(*report.layers[1].d_score, 0, 1e-6);
}

}  // namespace
}  // namespace remcaps
