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
