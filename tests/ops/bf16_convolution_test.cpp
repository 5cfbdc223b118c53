// The bfloat16 convolution against libtorch's in float64, on inputs rounded to bfloat16. Its
// layouts and loops are tested on every CPU with a plain product, and on a CPU with AMX with its
// tiles.
#include "remcaps/kernels/convolution/bf16_convolution.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <bit>
#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/ops/convolution.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using kernels::ConvolutionShape;
using kernels::TileUnit;
using torch::Tensor;

struct Bf16Case {
  const char* name;
  ConvolutionShape shape;
  bool bias = true, relu = false;
};

// What GoogleTest shows.
std::ostream& operator<<(std::ostream& out, const Bf16Case& value) {
  return out << value.name;
}

struct Bf16Inputs {
  explicit Bf16Inputs(const ConvolutionShape& s)
      : map(torch::randn({s.batch, s.height, s.width, s.channels})),
        weight(torch::randn({s.filters, s.channels, s.kernel_height, s.kernel_width}) * 0.1),
        bias(torch::randn({s.filters})) {}

  Tensor map, weight, bias;  // the map in the order [B, H, W, C]
};

// [B, oh, ow, F]
Tensor run_on(const TileUnit& unit, const ConvolutionShape& shape, const Bf16Inputs& inputs,
              bool bias = true, bool relu = false) {
  const Tensor out =
      torch::full({shape.batch, shape.out_height(), shape.out_width(), shape.filters}, NAN);
  kernels::cpu::bf16_convolution(
      shape, unit, inputs.map.data_ptr<float>(), inputs.weight.data_ptr<float>(),
      bias ? inputs.bias.data_ptr<float>() : nullptr, relu, out.data_ptr<float>());
  return out;
}

Tensor rounded(const Tensor& tensor) {
  return tensor.to(torch::kBFloat16).to(torch::kFloat64);
}

class Bf16Convolution : public ::testing::TestWithParam<std::tuple<bool, Bf16Case>> {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    unit_ = std::get<0>(GetParam()) ? kernels::amx_tiles() : &kernels::plain_tiles();
    if (unit_ == nullptr) GTEST_SKIP() << "no AMX";
  }
  const TileUnit* unit_ = nullptr;
};

TEST_P(Bf16Convolution, IsTheConvolutionOfRoundedNumbersSummedInFloat32) {
  const auto& [name, s, bias, relu] = std::get<1>(GetParam());
  const Bf16Inputs inputs(s);
  const Tensor found = run_on(*unit_, s, inputs, bias, relu);
  Tensor expected =
      torch::conv2d(rounded(inputs.map).permute({0, 3, 1, 2}), rounded(inputs.weight),
                    bias ? inputs.bias.to(torch::kFloat64) : Tensor(), {s.stride_y, s.stride_x});
  if (relu) expected = torch::relu(expected);
  EXPECT_TRUE(close_to(found, expected.permute({0, 2, 3, 1}), 1e-5));
}

const Bf16Case kBf16Cases[] = {{"GreyImages", {3, 14, 13, 1, 48, 9, 9, 1, 1}, true, true},
                               {"ColourImages", {2, 9, 8, 3, 33, 5, 5, 2, 1}},
                               {"RowsOfTheKernelApart", {3, 13, 13, 64, 64, 9, 9, 2, 2}},
                               {"RowsApartInOddSteps", {2, 7, 8, 151, 20, 4, 5, 1, 2}, false, true},
                               {"OneImageOnePlace", {1, 3, 3, 32, 32, 3, 3, 1, 1}},
                               {"OneByOne", {5, 5, 7, 7, 1, 1, 1, 2, 3}, false},
                               {"ManyPlaces", {17, 9, 9, 6, 40, 2, 3, 1, 1}, true, true}};

std::string bf16_case_name(const ::testing::TestParamInfo<std::tuple<bool, Bf16Case>>& info) {
  return std::get<1>(info.param).name;
}

// Apart, so that a CPU without AMX shows which suite it skipped.
INSTANTIATE_TEST_SUITE_P(Plain, Bf16Convolution,
                         ::testing::Combine(::testing::Values(false),
                                            ::testing::ValuesIn(kBf16Cases)),
                         bf16_case_name);
INSTANTIATE_TEST_SUITE_P(Amx, Bf16Convolution,
                         ::testing::Combine(::testing::Values(true),
                                            ::testing::ValuesIn(kBf16Cases)),
                         bf16_case_name);

TEST(Bf16Tiles, RoundToNearestAsLibtorchDoes) {
  const float ulp = std::ldexp(1.0F, -7);  // of a bfloat16 at 1
  const Tensor numbers = torch::cat(
      {torch::tensor({0.0F, -0.0F, 1 + ulp / 2, 1 + 3 * ulp / 2, -1 - ulp / 2, 3.4028e38F, INFINITY,
                      -INFINITY, NAN, 1 + ulp / 2 + 1e-6F, 1e-30F, 65535.0F}),
       torch::randn({52})});
  const auto expected = numbers.to(torch::kBFloat16).to(torch::kFloat32);
  for (const TileUnit* unit : {&kernels::plain_tiles(), kernels::amx_tiles()}) {
    if (unit == nullptr) continue;
    std::vector<kernels::Pair> pairs(2 * kernels::kStepPairs);
    unit->round_row(numbers.data_ptr<float>(), /*steps=*/2, pairs.data());
    for (int64_t i = 0; i < 64; ++i) {
      const kernels::Pair pair = pairs[i / 32 * kernels::kStepPairs + i % 32 / 2];
      const float found = std::bit_cast<float>(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
      const float wanted = expected[i].item<float>();
      EXPECT_TRUE(found == wanted || (std::isnan(found) && std::isnan(wanted)))
          << numbers[i].item<float>() << " became " << found << ", expected " << wanted;
    }
  }
}

TEST(Bf16Tiles, ResultsDoNotDependOnTheNumberOfThreads) {
  const ConvolutionShape shape = {9, 9, 9, 5, 70, 3, 3, 1, 1};
  const Bf16Inputs inputs(shape);
  for (const TileUnit* unit : {&kernels::plain_tiles(), kernels::amx_tiles()}) {
    if (unit == nullptr) continue;
    const auto run = [&](int threads) {
      const int before = at::get_num_threads();
      at::set_num_threads(threads);
      const Tensor out = run_on(*unit, shape, inputs);
      at::set_num_threads(before);
      return out;
    };
    const Tensor one = run(1);
    for (const int threads : {2, 3, 16}) EXPECT_TRUE(torch::equal(run(threads), one)) << threads;
  }
}

TEST(Bf16ConvolutionOfTensors, IsForThoseWhoAskAndNeedNoGradient) {
  const Tensor map = torch::randn({9, 4, 6, 6}), weight = torch::randn({8, 4, 3, 3});
  const Tensor bias = torch::randn({8}).requires_grad_();
  const auto is_chosen = [](const Tensor& given, const ConvolutionLayer& layer) {
    return choose(facts_of(given, layer, KernelPath::kFused)) == ConvolutionPath::kBf16Tiles;
  };
  EXPECT_FALSE(is_chosen(map, {.weight = weight}));
  const Bf16Convolutions on(true);
  const Bf16Convolutions inner(false);  // leaves it on
  const bool has = cpu_has_bf16_convolution();
  EXPECT_EQ(is_chosen(map, {.weight = weight}), has);
  EXPECT_FALSE(is_chosen(map, {.weight = weight, .bias = bias}));
  EXPECT_FALSE(is_chosen(map.to(torch::kFloat64), {.weight = weight}));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(is_chosen(map, {.weight = weight, .bias = bias}), has);
  }
  if (!has) {
    EXPECT_THROW(convolution_by(ConvolutionPath::kBf16Tiles, map, {.weight = weight}), Error);
  }
}

TEST(Bf16ConvolutionOnAmx, TakesMapsInAnyLayoutAndReturnsChannelsLast) {
  if (!cpu_has_bf16_convolution()) GTEST_SKIP() << "no AMX";
  const Tensor map = torch::randn({5, 40, 9, 8}), weight = torch::randn({24, 40, 3, 3}) * 0.1;
  const Tensor bias = torch::randn({24});
  const Tensor found = bf16_convolution(map, weight, bias, {2, 1}, /*relu=*/true);
  EXPECT_TRUE(found.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(close_to(
      found,
      torch::relu(torch::conv2d(rounded(map), rounded(weight), bias.to(torch::kFloat64), {2, 1})),
      1e-5));
  EXPECT_TRUE(
      torch::equal(found, bf16_convolution(map.contiguous(torch::MemoryFormat::ChannelsLast),
                                           weight, bias, {2, 1}, /*relu=*/true)));
  EXPECT_THROW(
      convolution_by(ConvolutionPath::kBf16Tiles, map, {.weight = torch::randn({8, 40, 10, 3})}),
      Error);
}

}  // namespace
}  // namespace remcaps
