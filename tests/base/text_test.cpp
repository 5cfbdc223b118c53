#include "remcaps/base/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "remcaps/base/json.h"

namespace remcaps {
namespace {

TEST(CsvRow, QuotesWhatNeedsIt) {
  EXPECT_EQ(csv_row(std::vector<std::string>{"plain", "a,b", "say \"x\"", ""}),
            "plain,\"a,b\",\"say \"\"x\"\"\",\n");
  EXPECT_EQ(csv_row({}), "\n");
}

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

TEST(FirstLine, LeavesOutWhatIsBelow) {
  EXPECT_EQ(first_line("CUDA error: out of luck\nCompile with advice.\n\n"),
            "CUDA error: out of luck");
  EXPECT_EQ(first_line("all of it"), "all of it");
  EXPECT_EQ(first_line(""), "");
}

TEST(Utf8, IsToldFromOtherBytes) {
  for (const char* fine : {"", "plain", "caf\u00e9", "\u20ac", "\U0001f600", "\U0010ffff"})
    EXPECT_TRUE(is_utf8(fine)) << fine;
  for (const char* wrong : {"caf\xe9", "\x80", "\xc3", "\xc0\xaf", "\xe2\x82", "\xe0\x80\xaf",
                            "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_FALSE(is_utf8(wrong)) << wrong;
}

TEST(JsonText, HoldsNamesThatAreNotUtf8AsFarAsTheyAre) {
  EXPECT_EQ(json_text({{"file", "caf\xe9.png"}, {"n", 1}}), "{\"file\":\"caf\ufffd.png\",\"n\":1}");
  EXPECT_EQ(json_text({{"n", 1}}, 2), "{\n  \"n\": 1\n}");
}

TEST(Base64, MatchesTheExamplesOfItsStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(NumberRanges, AreListsAndRisingRanges) {
  using Ranges = std::vector<NumberRange>;
  EXPECT_EQ(parse_ranges("7"), (Ranges{{7, 7}}));
  EXPECT_EQ(parse_ranges("3,7,10..14"), (Ranges{{3, 3}, {7, 7}, {10, 14}}));
  EXPECT_EQ(parse_ranges("5..5,2"), (Ranges{{5, 5}, {2, 2}}));
  EXPECT_EQ(parse_ranges("0..9223372036854775807"), (Ranges{{0, INT64_MAX}}));
  for (const char* wrong : {"", ",", "1,", ",1", "4..2", "a", "1.5", "-1", "1..", "..2", "1..2..3",
                            "0-9", " 1", "9223372036854775808"})
    EXPECT_FALSE(parse_ranges(wrong)) << wrong;
}

}  // namespace
}  // namespace remcaps
