#include "remcaps/training/launch.h"

#include <gtest/gtest.h>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

TEST(Seeds, RangesAndLists) {
  EXPECT_EQ(parse_seeds("42..44"), (std::vector<int64_t>{42, 43, 44}));
  EXPECT_EQ(parse_seeds("1,5..6,9"), (std::vector<int64_t>{1, 5, 6, 9}));
  for (const char* wrong : {"", "4..2", "a", "1,", "1..2..3", "-1", "0..100000"})
    EXPECT_THROW(parse_seeds(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace remcaps
