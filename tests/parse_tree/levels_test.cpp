#include "remcaps/parse_tree/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using Quantizers = std::vector<std::optional<Quantizer>>;

// A network that needs 5 levels in its first layer and 9 in its second.
LevelPoint measure(const Quantizers& quantizers, size_t of) {
  LevelPoint point;
  point.accuracy = 0.9;
  if (quantizers[0] && quantizers[0]->levels() < 5) point.accuracy -= 0.1;
  if (quantizers[1] && quantizers[1]->levels() < 9) point.accuracy -= 0.01;
  point.entropy = static_cast<double>(quantizers[of]->levels());
  return point;
}

TEST(ChoiceOfLevels, IsTheLowestPerLayerThatKeepsAccuracy) {
  const LevelChoice choice = choose_levels({"hidden", "class"}, 0.9, measure, {});
  EXPECT_THAT(choice.levels(), ElementsAre(5, 9));
  EXPECT_EQ(choice.curves[0].points.size(), 20u) << "the whole curve, 2 to 21";
  EXPECT_EQ(choice.curves[1].points[3].levels, 5);
  EXPECT_EQ(choice.curves[1].points[3].entropy, 5);
}

TEST(ChoiceOfLevels, ToleranceLowersIt) {
  EXPECT_THAT(
      choose_levels({"a", "b"}, 0.9, measure, {.candidates = {}, .tolerance = 0.02}).levels(),
      ElementsAre(5, 2));
}

TEST(ChoiceOfLevels, LaterLayersSeeTheChoiceOfEarlierOnes) {
  std::vector<int64_t> first_layer_levels;
  choose_levels({"a", "b"}, 0.9,
                [&](const Quantizers& quantizers, size_t of) {
                  if (of == 1) first_layer_levels.push_back(quantizers[0]->levels());
                  EXPECT_TRUE(of == 1 || !quantizers[1].has_value());
                  return measure(quantizers, of);
                },
                {.candidates = {11, 6}});
  EXPECT_THAT(first_layer_levels, ElementsAre(6, 6));
}

TEST(ChoiceOfLevels, LayerThatNoKSuitsIsLeftAlone) {
  const LevelChoice choice = choose_levels({"a", "b"}, 0.9, measure, {.candidates = {2, 3, 4}});
  EXPECT_THAT(choice.levels(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace remcaps
