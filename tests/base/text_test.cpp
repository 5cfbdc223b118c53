#include "remcaps/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace remcaps {
namespace {

TEST(HumanNumbers, AreReadable) {
  EXPECT_EQ(with_commas(30729999), "30,729,999");
  EXPECT_EQ(with_commas(-1234), "-1,234");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(94.0 * 1024 * 1024), "94.0 MiB");
}

TEST(HumanNumbers, ShapesToo) {
  EXPECT_EQ(shape_text(std::vector<int64_t>{3, 32, 32}), "3x32x32");
  EXPECT_EQ(shape_text({}), "");
}

TEST(Base64, MatchesTheExamplesOfItsStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace remcaps
