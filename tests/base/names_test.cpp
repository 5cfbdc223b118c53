#include "remcaps/base/names.h"

#include <gtest/gtest.h>

namespace remcaps {
namespace {

TEST(NearestName, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_name("dr-capnet", {"dr-capsnet", "deepcaps", "eff-capsnet"}), "dr-capsnet");
  EXPECT_EQ(nearest_name("--sed", {"--seed", "--set"}), "--seed");
}

TEST(NearestName, IsSilentWhereNothingIsClose) {
  EXPECT_EQ(nearest_name("resnet", {"--seed", "mnist"}), "");
}

TEST(Suggestion, ListsTheKnownNamesWhereNothingIsClose) {
  EXPECT_EQ(suggestion("xyz", {"mnist", "svhn"}), "; known: mnist, svhn");
  EXPECT_EQ(suggestion("mnst", {"mnist", "svhn"}), "; did you mean mnist?");
}

TEST(MatchesPattern, KnowsStarAndQuestionMark) {
  EXPECT_TRUE(matches_pattern("*.bias", "class.bias"));
  EXPECT_TRUE(matches_pattern("cell?.conv*.weight", "cell1.conv2.weight"));
  EXPECT_TRUE(matches_pattern("*a*b*", "xxaxxbxx"));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_FALSE(matches_pattern("*.bias", "class.bias2"));
  EXPECT_FALSE(matches_pattern("class", "class.weight"));
}

}  // namespace
}  // namespace remcaps
