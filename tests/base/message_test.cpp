#include "remcaps/base/message.h"

#include <gtest/gtest.h>

namespace remcaps {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "plain text", "caf\u00e9 \u20ac \U0001f600", "a\\b"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatWouldSteerATerminal) {
  EXPECT_EQ(printable("a\nb\rc\td"), "a\\nb\\rc\\td");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable("\u009b2J"), "\\xc2\\x9b2J");  // a control character of eight bits
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
}

}  // namespace
}  // namespace remcaps
