#include "remcaps/runs/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

EpochRecord record(int64_t epoch) {
  EpochRecord result;
  result.epoch = epoch;
  result.validation_loss = 0.25;
  return result;
}

TEST(Metrics, RowHasACellForEveryColumnAndUnmeasuredOnesAreEmpty) {
  const testing::TemporaryFolder folder;
  MetricsFile metrics(folder / "metrics.csv");
  metrics.append(record(0));
  const std::string text = read_file(folder / "metrics.csv");
  EXPECT_EQ(std::count(text.begin(), text.end(), ','),
            2 * (static_cast<int64_t>(MetricsFile::columns().size()) - 1));
  EXPECT_THAT(text, ::testing::HasSubstr("\n0,0,0,0,0,0.25,0,,,0,0,,,,,,,\n"));
}

TEST(Metrics, CutKeepsTheFirstRowsAndDropsATornOne) {
  const testing::TemporaryFolder folder;
  const auto path = folder / "metrics.csv";
  MetricsFile metrics(path);
  metrics.append(record(0));
  metrics.append(record(1));
  const std::string two = read_file(path);
  metrics.append(record(2));
  write_atomically(path, read_file(path) + "3,12");  // a row the kernel had not written whole
  metrics.cut(2);
  EXPECT_EQ(read_file(path), two);
}

TEST(Metrics, CutRefusesAFileWithTooFewRows) {
  const testing::TemporaryFolder folder;
  MetricsFile metrics(folder / "metrics.csv");
  metrics.append(record(0));
  EXPECT_THROW(metrics.cut(2), Error);
}

TEST(Metrics, ARowThatCannotBeFlushedIsToldWithItsOwnReason) {
  try {
    MetricsFile("/dev/null").append(record(0));  // takes every byte, and has no disk
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/null: cannot flush to disk: Invalid argument");
  }
}

TEST(Metrics, AnExistingFileIsContinued) {
  const testing::TemporaryFolder folder;
  { MetricsFile(folder / "metrics.csv").append(record(0)); }
  MetricsFile again(folder / "metrics.csv");
  again.append(record(1));
  again.cut(2);
  EXPECT_THAT(read_file(folder / "metrics.csv"), ::testing::HasSubstr("\n1,"));
}

TEST(ReadMetrics, TellsMissingNumbersFromZeros) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "metrics.csv", "epoch,entropy,keys\n0,,\n1,2.5,0\n");
  const nlohmann::json columns = read_metrics(folder / "metrics.csv");
  EXPECT_EQ(columns["epoch"], nlohmann::json({0.0, 1.0}));
  EXPECT_EQ(columns["entropy"], nlohmann::json({nullptr, 2.5}));
  EXPECT_EQ(columns["keys"], nlohmann::json({nullptr, 0.0}));
  EXPECT_EQ(read_metrics(folder / "absent.csv"), nlohmann::json::object());
}

TEST(ReadMetrics, NamesTheLineThatIsDamaged) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "metrics.csv", "epoch,loss\n0,0.5\n1,abc\n");
  try {
    read_metrics(folder / "metrics.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("line 3, loss is \"abc\"; expected a number"));
  }
}

TEST(ReadMetrics, RefusesWhatIsNoMetricsFile) {
  testing::TemporaryFolder folder;
  for (const char* text : {"", "\n", "garbage", "\x7f\x45\xff,\x01\n", "a,b\n1,2\n"}) {
    write_atomically(folder / "metrics.csv", text);
    EXPECT_THROW(read_metrics(folder / "metrics.csv"), Error) << text;
  }
}

}  // namespace
}  // namespace remcaps
