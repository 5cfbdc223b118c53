#include "remcaps/runs/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/runs/summary.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string lock_error(const RunFolder& run) {
  try {
    const RunLock lock(run);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunSummary, HasCapsulesOnlyIfTheNetworkRoutesSome) {
  RunSummary summary;
  EXPECT_FALSE(to_json(summary).contains("capsules"));
  EXPECT_FALSE(to_json(summary).contains("capsules_left"));
  summary.capsules = 6;
  EXPECT_EQ(to_json(summary).at("capsules"), 6);
  EXPECT_EQ(to_json(summary).at("capsules_left"), 0) << "all of them are pruned";
}

TEST(RunLock, IsRefusedWhileAnotherHoldsItAndLeavesNoFile) {
  const testing::TemporaryFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), 42);
  {
    const RunLock held(run);
    EXPECT_THAT(lock_error(run), HasSubstr("another process is training this run"));
  }
  EXPECT_TRUE(fs::is_empty(run.path()));
  EXPECT_EQ(lock_error(run), "no error");
}

TEST(RunLock, IsTakenOverFromAProcessThatWasKilled) {
  const testing::TemporaryFolder folder;
  const RunFolder run = RunFolder::create(folder.path(), 42);
  write_atomically(run.path() / ".lock", "");
  EXPECT_EQ(lock_error(run), "no error");
}

}  // namespace
}  // namespace remcaps
