// A convolution of pixels as one product, and the copies for tensor cores, against torch's own.
#include "remcaps/ops/pixel_layer.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "remcaps/ops/tensor_core_copy.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

struct PixelCase {
  int64_t batch, channels, height, width, filters, kernel_height, kernel_width;
  PixelLayer layer;
  bool bias = true;
};

class PixelLayerTest : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

TEST_P(PixelLayerTest, AgreesWithAConvolutionForwardAndBackward) {
  using Sizes = std::array<int64_t, 2>;
  const std::vector<PixelCase> cases = {
      {5, 1, 28, 28, 256, 9, 9, {.relu = true}},
      {2, 3, 13, 11, 64, 3, 5, {.stride = Sizes{2, 1}, .padding = Sizes{1, 2}, .relu = true}},
      {1, 1, 4, 4, 8, 4, 4, {.relu = true}},
      {3, 2, 9, 7, 10, 2, 3, {.relu = true}, false},  // filters a fused gradient is not made for
      {3, 3, 8, 8, 16, 5, 5, {.padding = Sizes{2, 2}}},
      {2, 4, 6, 6, 24, 3, 3, {}, false},
  };
  for (const PixelCase& c : cases)
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << c.filters << " filters, " << torch::toString(type));
      torch::manual_seed(3);
      const Tensor images = torch::randn({c.batch, c.channels, c.height, c.width});
      const Tensor weight =
          torch::randn({c.filters, c.channels, c.kernel_height, c.kernel_width}) * 0.2;
      const Tensor bias = torch::randn({c.filters});
      PixelLayer layer = c.layer;
      layer.type = type;
      const auto run = [&](torch::Device device, torch::ScalarType scalar,
                           const auto& convolution) {
        Tensor w = weight.to(device, scalar).clone().requires_grad_();
        Tensor b = c.bias ? bias.to(device, scalar).clone().requires_grad_() : Tensor();
        const Tensor out = convolution(images.to(device, scalar), w, b);
        const Tensor direction =
            torch::linspace(-1, 1, out.numel(), out.options().dtype(scalar)).view(out.sizes());
        (out.to(scalar) * direction).sum().backward();
        return std::vector<Tensor>{out.detach(), w.grad(), c.bias ? b.grad() : w.grad()};
      };
      const auto expected =
          run(torch::kCPU, torch::kFloat64, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
            const Tensor out = torch::conv2d(x, w, b, layer.stride, layer.padding);
            return layer.relu ? torch::relu(out) : out;
          });
      const auto found =
          run(device(), torch::kFloat32, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
            return pixel_layer(layer, x, w, b);
          });
      EXPECT_TRUE(found[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
      for (size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(found[i].scalar_type(), i > 0 ? torch::kFloat32 : type);
        // In bfloat16 a few numbers land on the other side of the ReLU's zero.
        EXPECT_TRUE(close_to(found[i], expected[i], type == torch::kFloat32 ? 1e-5 : 0.1));
      }
    }
}

TEST_P(PixelLayerTest, CopiesForTensorCoresAreTorchsOwn) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 128, 9, 9},
                                            {2, 64, 1, 1},
                                            {5, 1, 7, 7},
                                            {2, 3, 33, 35},
                                            {1, 64, 12, 12},
                                            {7, 96, 3, 3},
                                            {2, 192, 8, 16}}) {
    SCOPED_TRACE(shape);
    Tensor tensor = torch::randn(shape, torch::TensorOptions().device(device())).requires_grad_();
    const Tensor copy = tensor_core_copy(tensor);
    EXPECT_TRUE(copy.is_contiguous(torch::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(torch::equal(copy, tensor.to(torch::kBFloat16)));
    const Tensor gradient = torch::randn_like(copy);  // channels-last, as a convolution's is
    copy.backward(gradient);
    EXPECT_TRUE(tensor.grad().is_contiguous());
    EXPECT_TRUE(torch::equal(tensor.grad(), gradient.to(torch::kFloat32)));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PixelLayerTest, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace remcaps
