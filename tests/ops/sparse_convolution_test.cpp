// The convolution of pruned weights against libtorch's in float64.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/ops/convolution.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

struct SparseCase {
  const char* name;
  int64_t batch, channels, height, width;
  int64_t filters, kernel_height, kernel_width;
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
  double density = 0.1;
  bool bias = true, relu = false;
};

// What CTest shows.
std::ostream& operator<<(std::ostream& out, const SparseCase& value) {
  return out << value.name;
}

// Normally distributed numbers; all but this share are set to zero.
Tensor pruned(torch::IntArrayRef shape, double density) {
  return torch::randn(shape) * (torch::rand(shape) < density);
}

class SparseConvolution : public ::testing::TestWithParam<SparseCase> {};

TEST_P(SparseConvolution, AgreesWithLibtorch) {
  const SparseCase& c = GetParam();
  torch::manual_seed(3);
  const Tensor map = torch::randn({c.batch, c.channels, c.height, c.width});
  const Tensor weight =
      pruned({c.filters, c.channels, c.kernel_height, c.kernel_width}, c.density) * 0.1;
  const Tensor bias = c.bias ? torch::randn({c.filters}) : Tensor();
  Tensor expected =
      torch::conv2d(map.to(torch::kFloat64), weight.to(torch::kFloat64),
                    c.bias ? bias.to(torch::kFloat64) : Tensor(), c.stride, c.padding);
  if (c.relu) expected = torch::relu(expected);
  const SparseWeights weights(weight);
  EXPECT_TRUE(close_to(sparse_convolution(map, weights, bias, c.stride, c.padding, c.relu),
                       expected, 1e-5));
  const Tensor channels_last = map.contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(
      close_to(sparse_convolution(channels_last, weights, bias, c.stride, c.padding, c.relu),
               expected, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SparseConvolution,
    ::testing::Values(
        SparseCase{"PrimaryCapsules", 3, 24, 20, 20, 32, 9, 9, {2, 2}},
        SparseCase{"ManyChannels", 2, 70, 14, 14, 12, 3, 3, {2, 2}, {0, 0}, 0.2, true, true},
        SparseCase{"GreyImages", 2, 1, 28, 28, 20, 9, 9, {1, 1}, {0, 0}, 0.5, true, true},
        SparseCase{"OneImage", 1, 7, 9, 11, 5, 3, 4},
        SparseCase{"Padded", 2, 8, 7, 7, 16, 3, 3, {1, 1}, {1, 1}},
        SparseCase{"PaddedInSteps", 5, 8, 14, 13, 9, 3, 3, {2, 2}, {1, 1}, 0.3, false},
        SparseCase{"UnequalSides", 2, 3, 10, 17, 4, 2, 5, {3, 2}, {2, 0}, 0.4},
        SparseCase{"MoreThanTheRegistersHold", 1, 2, 40, 37, 3, 5, 5},
        SparseCase{"OnePlace", 4, 6, 3, 3, 10, 3, 3},
        SparseCase{"StepsLongerThanTheWindow", 2, 4, 11, 11, 6, 2, 2, {4, 3}},
        SparseCase{"NothingLeft", 2, 4, 6, 6, 3, 3, 3, {1, 1}, {0, 0}, 0},
        SparseCase{"NothingPruned", 2, 5, 8, 8, 7, 3, 3, {2, 1}, {0, 1}, 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(SparseConvolution, DoesNotDependOnThreadsOrTheOtherImages) {
  torch::manual_seed(5);
  constexpr int64_t kChannels = 5 * SparseWeights::kBlock + 3;
  const SparseWeights weights(pruned({40, kChannels, 5, 5}, 0.2));
  const Tensor map = torch::randn({7, kChannels, 15, 15});
  const auto run = [&](const Tensor& images, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const Tensor out = sparse_convolution(images, weights, {}, {2, 2}, {0, 0}, /*relu=*/true);
    at::set_num_threads(before);
    return out;
  };
  const Tensor expected = run(map, 1);
  EXPECT_TRUE(torch::equal(run(map, 3), expected));
  for (const int threads : {3, 9})
    EXPECT_TRUE(torch::equal(run(map.narrow(0, 4, 1), threads), expected.narrow(0, 4, 1)));
}

TEST(SparseConvolution, KeepsWhatIsLeftBlockByBlockOfChannels) {
  constexpr int64_t kChannels = SparseWeights::kBlock + 2;
  Tensor weight = torch::zeros({2, kChannels, 2, 3});
  weight[0][1][0][2] = 3.0;
  weight[0][kChannels - 1][1][0] = -2.0;
  const SparseWeights weights(weight);
  EXPECT_DOUBLE_EQ(weights.density(), 2.0 / weight.numel());
  EXPECT_EQ(weights.values(), (std::vector<float>{3, 0, 0, 0, -2, 0, 0, 0}));
  EXPECT_EQ(weights.places(), (std::vector<uint16_t>{8, 8, 8, 8, 9, 9, 9, 9}));
  EXPECT_EQ(weights.begins(), (std::vector<int64_t>{0, 4, 4, 8, 8}));
  EXPECT_EQ(weights.run_filters(), (std::vector<uint32_t>{0, 1, 0, 1}));
}

TEST(SparseConvolution, LongRunsComeFirstAmongNeighbouringFilters) {
  constexpr int64_t kFilters = SparseWeights::kSorted + 2;
  Tensor weight = torch::zeros({kFilters, 1, 3, 3});
  weight[1] = 1.0;             // nine weights
  weight[5][0][0][0] = 2.0;    // one
  weight[kFilters - 1] = 3.0;  // nine, but in the next group
  const SparseWeights weights(weight);
  std::vector<uint32_t> filters = {1, 5, 0, 2, 3, 4};
  for (uint32_t f = 6; f < SparseWeights::kSorted; ++f) filters.push_back(f);
  filters.push_back(kFilters - 1);
  filters.push_back(kFilters - 2);
  EXPECT_EQ(weights.run_filters(), filters);
  EXPECT_EQ(weights.begins()[2], 16);
  EXPECT_EQ(weights.values()[12], 2.0F);
}

TEST(SparseConvolution, LargeMapsHaveWideStarts) {
  torch::manual_seed(6);
  const Tensor weight = pruned({3, 2, 3, 3}, 0.5);
  const SparseWeights weights(weight);
  const Tensor map = torch::randn({1, 2, 300, 310});
  EXPECT_FALSE(weights
                   .starts({.height = 300,
                            .width = 310,
                            .channels = 2,
                            .filters = 3,
                            .kernel_height = 3,
                            .kernel_width = 3})
                   ->wide.empty());
  EXPECT_TRUE(close_to(sparse_convolution(map, weights, {}, {1, 1}, {0, 0}, false),
                       torch::conv2d(map.to(torch::kFloat64), weight.to(torch::kFloat64)), 1e-5));
}

TEST(SparseConvolution, WindowsThatDoNotFitAreErrors) {
  const Tensor weight = torch::ones({1, 2, 3, 3});
  const SparseWeights weights(weight);
  const auto run = [&](const Tensor& map) {
    return convolution_by(ConvolutionPath::kSparse, map, {.weight = weight, .sparse = &weights});
  };
  EXPECT_NO_THROW(run(torch::zeros({1, 2, 3, 5})));
  EXPECT_THROW(run(torch::zeros({1, 2, 2, 5})), Error);
  EXPECT_THROW(run(torch::zeros({1, 3, 5, 5})), Error);
  EXPECT_THROW(run(torch::zeros({1, 2, 5, 5}, torch::kFloat64)), Error);
}

}  // namespace
}  // namespace remcaps
