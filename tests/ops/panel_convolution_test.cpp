// The CPU's convolution by panels against libtorch's in float64, forward and all gradients.
#include "remcaps/ops/cpu_convolution.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/tile_product.h"
#include "remcaps/ops/convolution.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

struct ConvolutionCase {
  const char* name;
  int64_t batch, channels, height, width;
  int64_t filters, kernel_height, kernel_width;  ///< see in_floats() for channels and filters
  std::array<int64_t, 2> stride;
  bool bias = true;
};

// A number of channels that fills whole tiles of this CPU and is at least 64, so that a row of the
// kernel is long enough for the gradient of the map.
int64_t wide_tile() {
  const int64_t width = kernels::tile_width();
  return (64 + width - 1) / width * width;
}

// A positive count stands for that many tiles, a negative one (-c) for c channels.
int64_t in_floats(int64_t count) {
  return count < 0 ? -count : count * wide_tile();
}

class PanelConvolution : public ::testing::TestWithParam<ConvolutionCase> {};

TEST_P(PanelConvolution, AgreesWithLibtorchForwardAndBackward) {
  const ConvolutionCase& c = GetParam();
  torch::manual_seed(5);
  const int64_t channels = in_floats(c.channels), filters = in_floats(c.filters);
  const Tensor map = torch::randn({c.batch, channels, c.height, c.width});
  const Tensor weight = torch::randn({filters, channels, c.kernel_height, c.kernel_width}) * 0.1;
  const Tensor bias = torch::randn({filters});
  const bool map_gradient = c.channels > 0;

  const auto run = [&](torch::ScalarType type, const auto& convolution) {
    Tensor x = map.to(type).clone().requires_grad_(map_gradient);
    Tensor w = weight.to(type).clone().requires_grad_();
    Tensor b = c.bias ? bias.to(type).clone().requires_grad_() : Tensor();
    const Tensor out = convolution(x, w, b);
    (out * torch::linspace(-1, 1, out.numel(), type).view_as(out)).sum().backward();
    return std::vector<Tensor>{out, map_gradient ? x.grad() : x, w.grad(), c.bias ? b.grad() : w};
  };
  const auto fast = run(torch::kFloat32, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    return convolution_by(ConvolutionPath::kPanels, x,
                          {.weight = w, .bias = b, .stride = c.stride});
  });
  const auto plain = run(torch::kFloat64, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    return torch::conv2d(x, w, b, c.stride);
  });
  for (size_t i = 0; i < plain.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(fast[i].sizes(), plain[i].sizes());
    EXPECT_TRUE(close_to(fast[i], plain[i], 1e-5));
  }
}

TEST_P(PanelConvolution, PackedFiltersGiveTheSameBits) {
  const ConvolutionCase& c = GetParam();
  torch::manual_seed(6);
  const int64_t channels = in_floats(c.channels), filters = in_floats(c.filters);
  const Tensor map = torch::randn({c.batch, channels, c.height, c.width});
  const Tensor weight = torch::randn({filters, channels, c.kernel_height, c.kernel_width});
  const Tensor bias = c.bias ? torch::randn({filters}) : Tensor();
  const PackedFilters packed(weight);
  const Tensor expected = panel_convolution(map, weight, bias, c.stride);
  EXPECT_TRUE(torch::equal(panel_convolution(map, weight, bias, c.stride, &packed), expected));
  for (int64_t image = 0; image < c.batch; ++image)
    EXPECT_TRUE(
        torch::equal(panel_convolution(map.narrow(0, image, 1), weight, bias, c.stride, &packed),
                     expected.narrow(0, image, 1)));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PanelConvolution,
    ::testing::Values(ConvolutionCase{"Primary", 3, 1, 13, 13, 2, 9, 9, {2, 2}},
                      ConvolutionCase{"OneImageOnePlace", 1, 1, 3, 3, 1, 3, 3, {1, 1}},
                      ConvolutionCase{"OddMap", 2, 2, 7, 9, 1, 3, 2, {1, 3}, false},
                      ConvolutionCase{"ManyImages", 19, 1, 4, 4, 1, 3, 3, {1, 1}},
                      ConvolutionCase{"OneByOneStrided", 2, 2, 5, 5, 1, 1, 1, {2, 2}},
                      ConvolutionCase{"GreyImages", 5, -1, 12, 11, 2, 9, 9, {1, 1}},
                      ConvolutionCase{"ColourImages", 2, -3, 8, 8, 1, 5, 5, {2, 1}},
                      ConvolutionCase{"OddChannels", 2, -67, 6, 6, 1, 3, 3, {1, 1}, false}),
    [](const auto& info) { return info.param.name; });

TEST(PanelConvolutionCpu, TakesMapsInAnyLayoutAndAlignment) {
  const int64_t width = kernels::tile_width();
  const Tensor weight = torch::randn({width, width, 3, 3});
  const Tensor shifted =
      torch::randn({2 * width * 36 + 1}).narrow(0, 1, 2 * width * 36).view({2, 6, 6, width});
  const Tensor map = shifted.permute({0, 3, 1, 2});
  const Tensor expected = panel_convolution(map.contiguous(), weight, Tensor(), {1, 1});
  EXPECT_TRUE(torch::equal(panel_convolution(map, weight, Tensor(), {1, 1}), expected));
}

TEST(PanelConvolutionCpu, ResultsDoNotDependOnTheNumberOfThreads) {
  const int64_t width = wide_tile();
  const Tensor map = torch::randn({9, width, 9, 9});
  const Tensor weight = torch::randn({2 * width, width, 3, 3});
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    Tensor x = map.clone().requires_grad_(), w = weight.clone().requires_grad_();
    const Tensor out = panel_convolution(x, w, Tensor(), {2, 2});
    out.square().sum().backward();
    at::set_num_threads(before);
    return std::vector<Tensor>{out.detach(), x.grad(), w.grad()};
  };
  const std::vector<Tensor> one = run(1), three = run(3);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
}

TEST(PanelConvolutionCpu, PackedFiltersOfRandomShapesAgreeWithLibtorch) {
  torch::manual_seed(8);
  const auto draw = [](int64_t from, int64_t to) {
    return torch::randint(from, to + 1, {1}).item<int64_t>();
  };
  for (int i = 0; i < 30; ++i) {
    const int64_t kernel_height = draw(1, 5), kernel_width = draw(1, 5);
    const std::array<int64_t, 2> stride = {draw(1, 3), draw(1, 3)};
    const Tensor map = torch::randn(
        {draw(1, 6), draw(1, 80), kernel_height + draw(0, 7), kernel_width + draw(0, 15)});
    const Tensor weight = torch::randn(
        {draw(1, 3) * kernels::tile_width(), map.size(1), kernel_height, kernel_width});
    const Tensor bias = torch::randn({weight.size(0)});
    SCOPED_TRACE(::testing::Message() << map.sizes() << ", " << weight.sizes());
    const PackedFilters packed(weight);
    EXPECT_TRUE(close_to(panel_convolution(map, weight, bias, stride, &packed),
                         torch::conv2d(map.to(torch::kFloat64), weight.to(torch::kFloat64),
                                       bias.to(torch::kFloat64), stride),
                         1e-5));
  }
}

TEST(PanelConvolutionCpu, GradientsAreThoseOfTheWeightNotOfItsPackedFilters) {
  const int64_t width = kernels::tile_width();
  const Tensor map = torch::randn({2, width, 5, 5});
  const Tensor weight = torch::randn({width, width, 3, 3});
  const PackedFilters packed(weight);
  const Tensor leaf = weight.clone().requires_grad_();
  convolution_by(ConvolutionPath::kPanels, map, {.weight = leaf, .filters = &packed})
      .sum()
      .backward();
  const Tensor expected = weight.clone().requires_grad_();
  panel_convolution(map, expected, Tensor(), {1, 1}).sum().backward();
  EXPECT_TRUE(torch::equal(leaf.grad(), expected.grad()));
}

TEST(PanelConvolutionCpu, PackedFiltersAreThoseOfOneWeight) {
  const int64_t width = kernels::tile_width();
  const Tensor map = torch::randn({1, 4, 5, 5});
  const PackedFilters packed(torch::randn({width, 4, 3, 2}));
  EXPECT_THROW(convolution_by(ConvolutionPath::kPanels, map,
                              {.weight = torch::randn({width, 4, 2, 3}), .filters = &packed}),
               Error);
  EXPECT_FALSE(PackedFilters::can_pack(torch::randn({width + 1, 4, 3, 3})));
  EXPECT_THROW(PackedFilters(torch::randn({width + 1, 4, 3, 3})), Error);
  EXPECT_THROW(PackedFilters(torch::randn({width, 4, 3, 3}, torch::kFloat64)), Error);
}

TEST(PanelConvolutionCpu, ShapesItHasNoKernelForAreErrors) {
  const int64_t width = kernels::tile_width();
  const Tensor map = torch::randn({2, width, 6, 6});
  const auto run = [](const Tensor& given, const Tensor& weight, int64_t padding = 0) {
    return convolution_by(ConvolutionPath::kPanels, given,
                          {.weight = weight, .padding = {padding, padding}});
  };
  EXPECT_NO_THROW(run(map, torch::randn({width, width, 3, 3})));
  EXPECT_THROW(run(map, torch::randn({width + 1, width, 3, 3})), Error);
  EXPECT_THROW(run(map, torch::randn({width, width, 7, 3})), Error);
  EXPECT_THROW(run(map, torch::randn({width, width + 1, 3, 3})), Error);
  EXPECT_THROW(run(map, torch::randn({width, width, 3, 3}), 1), Error);
  EXPECT_THROW(run(map.to(torch::kFloat64), torch::randn({width, width, 3, 3}, torch::kFloat64)),
               Error);
  const Tensor few = torch::randn({2, 3, 6, 6}).requires_grad_();
  EXPECT_THROW(run(few, torch::randn({width, 3, 3, 3})), Error);
}

}  // namespace
}  // namespace remcaps
