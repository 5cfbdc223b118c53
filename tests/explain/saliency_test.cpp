#include "remcaps/explain/saliency.h"

#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "tests/explain/traces.h"

namespace remcaps {
namespace {

using testing::connected;
using testing::dense_grid;
using testing::floats;
using testing::forward_of;
using testing::small_tree;

constexpr ImageShape kFourByFour = {1, 4, 4};

// Two types on a 2x2 grid, two classes.
Forward on_a_grid() {
  const Tensor activations = floats({1.0, 0.5, 0.0, 0.2, 0.8, 0.5, 1.0, 0.6}, {1, 8});
  const Tensor to_second = floats({0.5, 1.0, 0.3, 0.0, 0.25, 0.0, 0.1, 0.5}, {1, 8});
  return forward_of(floats({0.1, 0.7}, {1, 2}),
                    {connected("class", torch::stack({1 - to_second, to_second}, 2), activations,
                               {dense_grid(2, 2, 2)})});
}

TEST(Saliency, IsTheMeanOverTypesOfActivationTimesCouplingToThePredictedClass) {
  const Forward forward = on_a_grid();
  const Saliency result = saliency(forward.routings, 0, predicted_classes(forward), {1, 2, 2});
  ASSERT_EQ(result.cells.size(), 1u);
  const Tensor expected = floats({(1.0 * 0.5 + 0.8 * 0.25) / 2, (0.5 * 1.0 + 0.5 * 0.0) / 2,
                                  (0.0 * 0.3 + 1.0 * 0.1) / 2, (0.2 * 0.0 + 0.6 * 0.5) / 2},
                                 {1, 2, 2});
  EXPECT_TRUE(torch::allclose(result.cells[0], expected));
  EXPECT_TRUE(torch::allclose(result.map, expected)) << "the input is as large as the grid";
}

TEST(Saliency, FollowsTheClassItIsAskedFor) {
  const Forward forward = on_a_grid();
  const Saliency other = saliency(forward.routings, 0, torch::zeros({1}, torch::kLong), {1, 2, 2});
  EXPECT_FLOAT_EQ(other.cells[0][0][0][0].item<float>(), (1.0f * 0.5f + 0.8f * 0.75f) / 2);
}

TEST(Saliency, UpsamplingKeepsTheMeanAndStaysBetweenTheCells) {
  const Forward forward = on_a_grid();
  const Saliency result = saliency(forward.routings, 0, predicted_classes(forward), kFourByFour);
  EXPECT_EQ(result.map.sizes(), (std::vector<int64_t>{1, 4, 4}));
  EXPECT_GE(result.map.min().item<float>(), result.cells[0].min().item<float>());
  EXPECT_LE(result.map.max().item<float>(), result.cells[0].max().item<float>());
  EXPECT_NEAR(result.map.mean().item<float>(), result.cells[0].mean().item<float>(), 1e-6);
}

TEST(Saliency, SeveralGridsAreAveragedByTheirNumbersOfTypes) {
  // One type on 2x2 with E = 0.4 everywhere, three types on 1x1 with E = 0.8.
  const Tensor coupling = torch::ones({1, 7, 1});
  const Tensor activations = floats({0.4, 0.4, 0.4, 0.4, 0.7, 0.8, 0.9}, {1, 7});
  const std::vector<RoutingTrace> routings = {
      connected("class", coupling, activations, {dense_grid(1, 2, 2), dense_grid(3, 1, 1, 4)})};
  const Saliency result = saliency(routings, 0, torch::zeros({1}, torch::kLong), kFourByFour);
  ASSERT_EQ(result.cells.size(), 2u);
  const Tensor expected = torch::full({1, 4, 4}, (1 * 0.4 + 3 * 0.8) / 4);
  EXPECT_TRUE(torch::allclose(result.map, expected));
}

TEST(Saliency, ReadsAnyOrderOfCapsulesFromTheGridsStrides) {
  // (y, x, type), as DeepCaps flattens its maps.
  const Tensor activations = torch::arange(1, 9).to(torch::kFloat).view({1, 8});
  const CapsuleGrid grid = {0, 2, 2, 2, 1, 4, 2};
  const std::vector<RoutingTrace> routings = {
      connected("class", torch::ones({1, 8, 1}), activations, {grid})};
  const Saliency result = saliency(routings, 0, torch::zeros({1}, torch::kLong), {1, 2, 2});
  EXPECT_TRUE(torch::allclose(result.map, floats({1.5, 3.5, 5.5, 7.5}, {1, 2, 2})));
}

TEST(Saliency, IsNeverNegativeEvenWhereAPriorMakesACouplingSo) {
  const std::vector<RoutingTrace> routings = {
      connected("class", floats({-0.2, 0.5, 0.1, 0.3}, {1, 4, 1}), torch::ones({1, 4}),
                {dense_grid(1, 2, 2)})};
  const Saliency result = saliency(routings, 0, torch::zeros({1}, torch::kLong), kFourByFour);
  EXPECT_GE(result.map.min().item<float>(), 0);
}

// Three places in a row that see 5 pixels each, 2 apart, on a 9 x 9 image.
CapsuleGrid row_of_three() {
  CapsuleGrid grid = dense_grid(1, 1, 3);
  grid.field = {.y = {.first = 4, .step = 1, .size = 9}, .x = {.first = 2, .step = 2, .size = 5}};
  return grid;
}

TEST(Placement, SpreadsEachCapsuleOverThePixelsItSees) {
  const Tensor map = place_on_image(floats({0, 3, 0}, {1, 3}), {row_of_three()}, {1, 9, 9},
                                    Placement::kReceptiveFields)[0];
  EXPECT_NEAR(map.sum().item<double>(), 3, 1e-6);
  EXPECT_EQ(map.argmax().item<int64_t>(), 4 * 9 + 4) << "its centre";
  for (int64_t x = 0; x < 9; ++x)
    EXPECT_EQ(map.select(1, x).sum().item<double>() > 0, x >= 2 && x <= 6) << x;
  EXPECT_GT(map[4][3].item<double>(), map[4][2].item<double>());
}

TEST(Placement, KeepsTheSumWhereFieldsReachOverTheBorder) {
  CapsuleGrid padded = dense_grid(2, 1, 2);
  padded.field = {.y = {.first = 0, .step = 1, .size = 3},
                  .x = {.first = -7, .step = 20, .size = 5}};
  const Tensor map = place_on_image(floats({1, 2, 3, 4}, {1, 4}), {padded}, {1, 4, 4},
                                    Placement::kReceptiveFields)[0];
  EXPECT_NEAR(map.sum().item<double>(), 10, 1e-5);
  EXPECT_NEAR(map.select(1, 0).sum().item<double>(), 4, 1e-5) << "it sees padding only";
  EXPECT_NEAR(map.select(1, 3).sum().item<double>(), 6, 1e-5) << "it sees padding only";
}

// Two hidden capsules between three children and one class; contributions as a network gives them.
std::vector<RoutingTrace> with_contributions() {
  std::vector<RoutingTrace> routings = {
      connected("hidden", torch::full({1, 3, 2}, 0.5), torch::ones({1, 3}), {row_of_three()}),
      connected("class", torch::full({1, 2, 1}, 0.5), torch::ones({1, 2}))};
  routings[0].contribution = floats({3, 0, -1, 1, 2, 0}, {1, 3, 2});
  routings[0].bias_contribution = floats({1, 1}, {1, 2});  // evidence 5 and 2
  routings[1].contribution = floats({10, -4}, {1, 2, 1});
  routings[1].bias_contribution = floats({0.5}, {1, 1});
  return routings;
}

TEST(Evidence, SharesMultiplyAlongThePathsAndAddUp) {
  const Tensor classes = torch::zeros({1}, torch::kLong);
  const Evidence below = evidence_for(with_contributions(), 0, classes);
  // Worth of a unit of evidence: 10 / 5 for the first hidden capsule, -4 / 2 for the second.
  EXPECT_TRUE(below.children.to(torch::kFloat).allclose(floats({6, -4, 4}, {1, 3})));
  EXPECT_NEAR(below.bias.item<double>(), 0.5 + 2 * 1 - 2 * 1, 1e-9);
  EXPECT_NEAR(below.total().item<double>(), 6.5, 1e-9);
  EXPECT_NEAR(evidence_for(with_contributions(), 1, classes).total().item<double>(), 6.5, 1e-9);
  EXPECT_THROW(evidence_for(small_tree().routings, 0, classes), Error) << "no contributions";
}

TEST(Evidence, AMapHasWhatIsForTheClassAndWhatIsAgainstIt) {
  const EvidenceMap map =
      evidence_map(with_contributions(), 0, torch::zeros({1}, torch::kLong), {1, 9, 9});
  EXPECT_NEAR(map.positive.sum().item<double>(), 10, 1e-6);
  EXPECT_NEAR(map.negative.sum().item<double>(), 4, 1e-6);
  EXPECT_NEAR(map.net().sum().item<double>(), 6, 1e-6);
  EXPECT_EQ(map.layer, "hidden");
}

TEST(EffectiveParts, CountTheFewestCapsulesThatCarryHalf) {
  const Tensor contributions = floats({1, 4, -9, 3, 2, 0, 5, 5, 0, 0, -1, -1, 0, 0, 0}, {3, 5});
  const EffectiveParts parts = effective_parts(contributions);
  EXPECT_TRUE(parts.half.equal(torch::tensor({2, 1, 0}, torch::kLong))) << "4 + 3 of 10; 5 of 10";
  EXPECT_NEAR(parts.spread[1].item<double>(), 2, 1e-9);
  EXPECT_EQ(parts.spread[2].item<double>(), 0);
  EXPECT_TRUE(carries_half(contributions[0])
                  .equal(torch::tensor({0, 1, 0, 1, 0}, torch::kByte).to(torch::kBool)));
}

TEST(Saliency, LooksAtTheLastLayerThatHasAPlace) {
  const Tensor half = torch::full({1, 4, 2}, 0.5), ones = torch::ones({1, 4});
  const std::vector<RoutingTrace> routings = {
      connected("hidden", half, ones, {dense_grid(1, 2, 2)}),
      connected("class", torch::full({1, 2, 2}, 0.5), torch::ones({1, 2}), {dense_grid(2, 1, 1)})};
  EXPECT_EQ(saliency_layer(routings, "net"), 0u) << "one cell is no place";
  EXPECT_EQ(saliency_layer(routings, "net", "hidden"), 0u);
  EXPECT_THROW(saliency_layer(routings, "net", "class"), Error);
  EXPECT_THROW(saliency_layer(routings, "net", "clas"), Error);
  EXPECT_THROW(saliency_layer({routings[1]}, "net"), Error);
}

TEST(Saliency, ShareOnTheObjectIsTheSaliencyInsideItsMask) {
  const Tensor map = floats({1, 2, 3, 4, 0, 0, 0, 0}, {2, 2, 2});
  const Tensor masks = torch::tensor({1, 0, 0, 1, 1, 1, 1, 1}, torch::kByte).view({2, 2, 2});
  const Tensor share = share_on_object(map, masks);
  EXPECT_FLOAT_EQ(share[0].item<float>(), 0.5f);
  EXPECT_FLOAT_EQ(share[1].item<float>(), 0.0f) << "an empty map lies nowhere";
  EXPECT_THROW(share_on_object(map, masks[0]), Error);
}

TEST(Backtracking, ComposesCouplingsAlongThePaths) {
  const Forward forward = small_tree();
  const Tensor classes = predicted_classes(forward);
  EXPECT_EQ(classes.item<int64_t>(), 1);
  EXPECT_TRUE(torch::allclose(coupling_to_class(forward.routings, 1, classes),
                              floats({0.9, 0.3, 0.6}, {1, 3})));
  EXPECT_TRUE(
      torch::allclose(coupling_to_class(forward.routings, 0, classes),
                      floats({0.8 * 0.9 + 0.1 * 0.3 + 0.1 * 0.6, 0.3 * 0.3 + 0.7 * 0.6}, {1, 2})));
}

TEST(Backtracking, PathsOfAllClassesShareOutWhatAChildGives) {
  const Forward forward = small_tree();
  Tensor sum = torch::zeros({1, 2});
  for (int64_t j = 0; j < 2; ++j)
    sum += coupling_to_class(forward.routings, 0, torch::full({1}, j, torch::kLong));
  EXPECT_TRUE(torch::allclose(sum, torch::ones({1, 2})));
}

// Three children in a row, windows of two with stride 1, two parent types: four parents.
std::vector<RoutingTrace> windowed() {
  RoutingTrace lower = connected("conv",
                                 floats({0.9, 0.1, 0.5, 0.5,   // window 0: children 0, 1
                                         0.2, 0.8, 1.0, 0.0},  // window 1: children 1, 2
                                        {1, 2, 2, 2}),
                                 torch::ones({1, 3}), {dense_grid(1, 1, 3)});
  lower.windows = torch::tensor({0, 1, 1, 2}, torch::kLong).view({2, 2});
  // Children (type, x): type 0 at windows 0 and 1, then type 1.
  RoutingTrace upper = connected("class", floats({1.0, 0.5, 0.0, 0.2}, {1, 4, 1}),
                                 torch::ones({1, 4}), {dense_grid(2, 1, 2)});
  return {lower, upper};
}

TEST(Backtracking, AChildOfSeveralWindowsGetsTheirMean) {
  const Tensor result = coupling_to_class(windowed(), 0, torch::zeros({1}, torch::kLong));
  const double in_window_0 = 0.5 * 1.0 + 0.5 * 0.0, in_window_1 = 0.2 * 0.5 + 0.8 * 0.2;
  EXPECT_TRUE(torch::allclose(
      result, floats({0.9 * 1.0 + 0.1 * 0.0, (in_window_0 + in_window_1) / 2, 1.0 * 0.5}, {1, 3})));
}

TEST(Backtracking, RefusesLayersThatAreNoChain) {
  std::vector<RoutingTrace> routings = windowed();
  routings[1].grids.clear();
  EXPECT_THROW(coupling_to_class(routings, 0, torch::zeros({1}, torch::kLong)), Error);
  routings = small_tree().routings;
  routings[0].coupling = torch::ones({1, 2, 4});
  EXPECT_THROW(coupling_to_class(routings, 0, torch::zeros({1}, torch::kLong)), Error);
}

}  // namespace
}  // namespace remcaps
