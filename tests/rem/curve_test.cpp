// A run of the published rule beside an independent implementation's, epoch by epoch: the two
// curves that docs/results.md compares.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "remcaps/report/html_report_run.h"

namespace remcaps {
namespace {

std::vector<double> column(const std::string& run, const std::string& name) {
  return read_metrics(REMCAPS_SOURCE_RESULTS "/curves/mnist/dr-capsnet-rem/" + run + ".csv")
      .at(name)
      .get<std::vector<double>>();
}

/// The mean of an epoch and two on either side of it.
double smooth(const std::vector<double>& values, size_t epoch) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(epoch);
  return std::accumulate(middle - 2, middle + 3, 0.0) / 5;
}

TEST(MnistCurve, Seed1127FollowsTheIndependentRun) {
  const auto sparsity = column("seed-1127", "sparsity"),
             loss = column("seed-1127", "validation_loss");
  const auto other_sparsity = column("independent", "sparsity"),
             other_loss = column("independent", "validation_loss");
  ASSERT_GE(sparsity.size(), 71u);
  for (size_t epoch = 10; epoch <= 68; ++epoch) {
    SCOPED_TRACE(epoch);
    EXPECT_NEAR(sparsity[epoch], other_sparsity[epoch], 0.05);
    EXPECT_NEAR(smooth(loss, epoch) / smooth(other_loss, epoch), 1, 0.25);
  }
}

}  // namespace
}  // namespace remcaps
