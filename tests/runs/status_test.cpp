#include "remcaps/runs/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/files.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

TEST(Statuses, ADamagedRunDoesNotHideTheOthers) {
  const testing::TemporaryFolder folder;
  const auto add_run = [&](const std::string& name, std::string_view summary) {
    make_folder(folder / name);
    write_atomically(folder / name / "recipe.yaml", std::string_view("{}"));
    write_atomically(folder / name / "state.safetensors", std::string_view("x"));
    write_atomically(folder / name / "summary.json", summary);
  };
  add_run("damaged/seed-42", "{\"epochs\":");
  add_run("whole/seed-42", "{\"epochs\": 3, \"accuracy\": 0.5}");
  const std::vector<RunStatus> statuses = find_statuses(folder.path());
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].state, RunStatus::State::kFailed);
  EXPECT_THAT(statuses[0].reason, ::testing::HasSubstr("damaged/seed-42/summary.json"));
  EXPECT_EQ(statuses[1].recipe, "whole");
  EXPECT_EQ(statuses[1].state, RunStatus::State::kFinished);
  EXPECT_EQ(statuses[1].test_accuracy, 0.5);
}

}  // namespace
}  // namespace remcaps
