// A convolution by strips against torch's own.
#include "remcaps/ops/strip_convolution.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

struct StripCase {
  int64_t batch, channels, height, width, filters, kernel_height, kernel_width;
  StripConvolution layer;
  bool bias = true;
};

class StripConvolutionTest : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

TEST_P(StripConvolutionTest, AgreesWithAConvolutionForwardAndBackward) {
  using Sizes = std::array<int64_t, 2>;
  const std::vector<StripCase> cases = {
      {3, 256, 20, 20, 256, 9, 9, {.stride = Sizes{2, 2}}},
      {1, 64, 9, 9, 8, 9, 9, {.stride = Sizes{2, 2}}},
      {2, 64, 11, 14, 24, 5, 7, {.stride = Sizes{2, 3}, .padding = Sizes{2, 3}}, false},
      {4, 64, 8, 7, 16, 5, 5, {.padding = Sizes{1, 0}}},
      {2, 128, 13, 12, 40, 7, 5, {.stride = Sizes{3, 1}, .padding = Sizes{3, 1}}},
      {5, 64, 7, 16, 8, 4, 8, {.stride = Sizes{4, 2}}},
  };
  for (const StripCase& c : cases)
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << c.filters << " filters " << c.kernel_height << " x "
                                        << c.kernel_width << ", " << torch::toString(type));
      if (type == torch::kBFloat16 && device().is_cpu()) continue;
      torch::manual_seed(3);
      // bfloat16 holds these numbers exactly, so only the rounding of sums differs.
      const auto random = [](std::vector<int64_t> shape) {
        return torch::randn(shape).to(torch::kBFloat16).to(torch::kFloat32);
      };
      const Tensor map = random({c.batch, c.channels, c.height, c.width});
      const Tensor weight = random({c.filters, c.channels, c.kernel_height, c.kernel_width});
      const Tensor bias = random({c.filters});
      const auto run = [&](torch::Device device, torch::ScalarType scalar,
                           torch::ScalarType map_type, const auto& convolution) {
        Tensor x = map.to(device, map_type).clone().requires_grad_();
        Tensor w = weight.to(device, scalar).clone().requires_grad_();
        Tensor b = c.bias ? bias.to(device, scalar).clone().requires_grad_() : Tensor();
        const Tensor out = convolution(x, w, b);
        const Tensor direction =
            torch::linspace(-1, 1, out.numel(), out.options().dtype(torch::kFloat32))
                .view(out.sizes())
                .to(torch::kBFloat16)
                .to(scalar);
        (out.to(scalar) * direction).sum().backward();
        return std::vector<Tensor>{out.detach(), x.grad(), w.grad(), c.bias ? b.grad() : w.grad()};
      };
      const auto expected = run(torch::kCPU, torch::kFloat64, torch::kFloat64,
                                [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                                  return torch::conv2d(x, w, b, c.layer.stride, c.layer.padding);
                                });
      const auto found = run(device(), torch::kFloat32, type,
                             [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                               return strip_convolution(c.layer, x, w, b);
                             });
      EXPECT_TRUE(found[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
      for (size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(found[i].scalar_type(), i < 2 ? type : torch::kFloat32);
        EXPECT_TRUE(close_to(found[i], expected[i], type == torch::kFloat32 ? 1e-5 : 1e-2));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, StripConvolutionTest, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace remcaps
