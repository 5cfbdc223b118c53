#include "remcaps/torch/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace remcaps {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> first(const std::vector<int64_t>& order, size_t count) {
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(NumpyShuffle, EqualsNumpysOwn) {
  EXPECT_THAT(numpy_shuffle(10, 0), ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5));
  EXPECT_THAT(first(numpy_shuffle(60000, 0), 5), ElementsAre(3048, 19563, 58303, 8870, 40228));
  EXPECT_THAT(first(numpy_shuffle(50000, 0), 5), ElementsAre(11841, 19602, 45519, 25747, 42642));
  EXPECT_THAT(first(numpy_shuffle(100000, 0), 5), ElementsAre(3582, 60498, 53227, 21333, 3885));
}

TEST(RandomUniform, EqualsTheScalarHashForEverySample) {
  const auto samples =
      torch::tensor({int64_t{0}, int64_t{1}, int64_t{59999}, (int64_t{1} << 33) + 7});
  const auto uniform = random_uniform(42, RandomStream::kAugment, 3, samples, 1);
  for (int64_t i = 0; i < samples.size(0); ++i) {
    const auto sample = static_cast<uint64_t>(samples[i].item<int64_t>());
    const uint32_t bits = random_bits(42, RandomStream::kAugment, 3, sample, 1);
    EXPECT_EQ(uniform[i].item<float>(), static_cast<float>(bits >> 8) / 16777216.0f);
  }
}

TEST(RandomUniform, DoesNotDependOnTheBatchItIsDrawnIn) {
  const auto all = random_uniform(1, RandomStream::kAugment, 0, torch::arange(100), 0);
  const auto some = random_uniform(1, RandomStream::kAugment, 0, torch::arange(40, 60), 0);
  EXPECT_TRUE(torch::equal(all.slice(0, 40, 60), some));
}

TEST(RandomUniform, IsUniformAndUncorrelatedAcrossKeys) {
  const auto samples = torch::arange(50000);
  const auto a = random_uniform(7, RandomStream::kAugment, 0, samples, 0).to(torch::kFloat64);
  for (const auto& b : {random_uniform(8, RandomStream::kAugment, 0, samples, 0),
                        random_uniform(7, RandomStream::kAugment, 1, samples, 0),
                        random_uniform(7, RandomStream::kAugment, 0, samples, 1),
                        random_uniform(7, RandomStream::kPruning, 0, samples, 0)}) {
    const auto other = b.to(torch::kFloat64);
    const double covariance = ((a - 0.5) * (other - 0.5)).mean().item<double>();
    EXPECT_LT(std::abs(covariance * 12), 0.02);
    EXPECT_NEAR(other.mean().item<double>(), 0.5, 0.01);
    EXPECT_NEAR(other.var().item<double>(), 1.0 / 12, 0.002);
  }
  EXPECT_GE(a.min().item<double>(), 0.0);
  EXPECT_LT(a.max().item<double>(), 1.0);
}

TEST(RandomPermutation, HoldsEveryIndexOnceAndChangesWithSeedAndEpoch) {
  std::vector<int64_t> order = random_permutation(1000, 42, 0);
  EXPECT_EQ(order, random_permutation(1000, 42, 0));
  EXPECT_NE(order, random_permutation(1000, 42, 1));
  EXPECT_NE(order, random_permutation(1000, 43, 0));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace remcaps
