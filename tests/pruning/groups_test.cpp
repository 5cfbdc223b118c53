#include "remcaps/pruning/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/pruning/threshold_search.h"
#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::ToyNetwork;
using testing::values;

std::string error_of(const std::vector<std::string>& groups) {
  ToyNetwork network;
  try {
    group_sizes(groups, prunable_weights(network, {}));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Groups, AreSlicesOfTheFirstDimension) {
  ToyNetwork network;
  EXPECT_THAT(group_sizes({"conv.weight", "class.*/2"}, prunable_weights(network, {})),
              ElementsAre(Pair("class.weight", 2), Pair("conv.weight", 1)));
  const Tensor norms = group_norms(torch::tensor({3.F, 0.F, 4.F, 1.F}).view({4, 1}), 2);
  EXPECT_THAT(values(norms.square()), ElementsAre(9, 9, 17, 17));
  EXPECT_EQ(group_norms(torch::ones({6, 2, 3, 3}), 3).sizes(), (std::vector<int64_t>{6, 1, 1, 1}));
}

TEST(Groups, ThatDoNotFitAreErrors) {
  EXPECT_THAT(error_of({"conf.weight"}), HasSubstr("did you mean conv.weight?"));
  EXPECT_THAT(error_of({"conv.weight/3"}), HasSubstr("the 2 slices of conv.weight"));
  for (const char* wrong : {"conv.weight/", "conv.weight/0", "conv.weight/-1", "conv.weight/2x"})
    EXPECT_THAT(error_of({wrong}), HasSubstr(wrong)) << wrong;
}

// Two child capsules with two weights each: one strong weight does not save a weak capsule.
TEST(Groups, GoAsAWholeIfTheirRootMeanSquareIsBelowTheThreshold) {
  ToyNetwork network({0.9f, 0.9f}, {0.4f, 0.01f, 0.45f, 0.5f});
  const auto weights = prunable_weights(network, {});
  const auto loss = [&] {  // what keeps the second capsule and the convolution alive
    const std::vector<float> left = values(network.weight);
    return left[2] != 0 && left[3] != 0 && values(network.conv_weight())[0] != 0 ? 1.0 : 2.0;
  };
  const SearchResult alone = search_threshold(weights, {0, 0.1, 1}, loss, {});
  EXPECT_THAT(values(network.weight), ElementsAre(0, 0, 0.45f, 0.5f));
  EXPECT_NEAR(alone.threshold, 0.45, 1e-3);

  ToyNetwork grouped({0.9f, 0.9f}, {0.4f, 0.01f, 0.3f, 0.29f});
  const auto early = [&] {  // a threshold above 0.29 costs
    return values(grouped.weight)[3] != 0 ? 1.0 : 2.0;
  };
  const SearchResult found = search_threshold(prunable_weights(grouped, {}), {0, 0.1, 1}, early,
                                              {.groups = {{"class.weight", 1}}});
  // rms(0.4, 0.01) = 0.283 < 0.29: 0.4 goes with its capsule, and 0.3 stays.
  EXPECT_THAT(values(grouped.weight), ElementsAre(0, 0, 0.3f, 0.29f));
  EXPECT_NEAR(found.threshold, 0.29, 1e-3);
}

}  // namespace
}  // namespace remcaps
