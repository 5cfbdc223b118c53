#include "remcaps/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace remcaps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kColumns = 79;  // of a terminal with 80

TEST(ProgressLine, ShowsAWholeBarIfThereIsRoom) {
  EXPECT_EQ(progress_line("evaluating", 0.5, "", "12 s", kColumns),
            "evaluating [============            ]  50 %  12 s left");
}

TEST(ProgressLine, ALongNoteShortensTheBarAndNothingElse) {
  const std::string note = "loss 0.0312  acc 98.21 %  12345 img/s";
  const std::string line = progress_line("epoch 12/300", 1, note, "1:02:03", kColumns);
  EXPECT_LE(line.size(), kColumns);
  EXPECT_THAT(line, StartsWith("epoch 12/300 [=="));
  EXPECT_THAT(line, EndsWith("=] 100 %  " + note + "  1:02:03 left"));
}

TEST(ProgressLine, ALongLabelLosesItsBeginning) {
  const std::string label =
      "runs/experiments/of/last/week/fashion-mnist/dr-capsnet-rem-tolerance-1/seed-42";
  const std::string line = progress_line(label, 0.25, "", "1:02", kColumns);
  EXPECT_EQ(line.size(), kColumns);
  EXPECT_THAT(line, StartsWith("..."));
  EXPECT_THAT(line, HasSubstr("rem-tolerance-1/seed-42 [=   ]  25 %  1:02 left"));
}

TEST(ProgressLine, DoesNotCutACharacterInTwo) {
  std::string label;
  for (int i = 0; i < 60; ++i) label += "\xc3\xa9";  // e with an accent
  for (size_t columns : {50, 51}) {
    const std::string line = progress_line(label, 0, "", "1 s", columns);
    EXPECT_LE(line.size(), columns);
    EXPECT_THAT(line, StartsWith("...\xc3\xa9"));
  }
}

TEST(ProgressLine, IsNeverWiderThanTheTerminal) {
  for (size_t columns = 20; columns < 120; ++columns)
    for (size_t label = 0; label < 100; label += 7)
      for (size_t note = 0; note < 60; note += 9) {
        const std::string line =
            progress_line(std::string(label, 'l'), 0.3, std::string(note, 'n'), "1:00", columns);
        ASSERT_LE(line.size(), columns) << line;
      }
}

}  // namespace
}  // namespace remcaps
