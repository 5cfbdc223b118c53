#include "remcaps/evaluation/memory.h"

#include <gtest/gtest.h>

#include "remcaps/base/files.h"
#include "tests/recipe/tiny_network.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

using testing::TemporaryFolder;
using testing::tiny_recipe;

TEST(Memory, IsEstimatedFromTheLayersCosts) {
  Recipe recipe = tiny_recipe();
  const auto model =
      build_model(recipe, {.input = {1, 6, 6}, .classes = 3, .mean = {0.3}, .std = {0.2}});
  const MemoryEstimate estimate = estimate_memory(*model, 16);
  const int64_t parameters = 12 * 36 + 12;
  EXPECT_EQ(estimate.weights, parameters * 4);
  EXPECT_EQ(estimate.optimiser, parameters * 12);
  EXPECT_EQ(estimate.votes, 100 * 16 * 4);
  EXPECT_EQ(estimate.largest_layer, "class");
  Recipe greedy = tiny_recipe("{train: {batch: 65536}, kernels: reference}");
  EXPECT_EQ(check_memory(*model, greedy, torch::kCPU), "");
  EXPECT_GT(available_memory(torch::kCPU), 0);
}

TEST(Memory, FilesThatAreOnlyCachedDoNotCountAgainstAControlGroupsLimit) {
  const TemporaryFolder group;
  EXPECT_EQ(group_available(group.path()), std::nullopt);
  write_atomically(group / "memory.max", "1000\n");
  write_atomically(group / "memory.current", "900\n");
  EXPECT_EQ(group_available(group.path()), 100);
  write_atomically(group / "memory.stat",
                   "anon 100\nfile 800\nshmem 50\ninactive_file 600\nactive_file 150\n");
  EXPECT_EQ(group_available(group.path()), 850);
  write_atomically(group / "memory.max", "max\n");
  EXPECT_EQ(group_available(group.path()), std::nullopt);
}

}  // namespace
}  // namespace remcaps
