// The bias of a map's channels against torch's own.
#include "remcaps/ops/channel_bias.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

class ChannelBiasTest : public ::testing::TestWithParam<std::string> {
 protected:
  torch::TensorOptions options(torch::ScalarType type) const {
    return torch::TensorOptions().device(torch::Device(GetParam())).dtype(type);
  }
};

TEST_P(ChannelBiasTest, IsAddedAndSummedAsTorchDoes) {
  for (const auto& [batch, channels, height, width] :
       {std::array<int64_t, 4>{3, 256, 7, 5}, {1, 8, 1, 1}, {2, 10, 4, 4}, {64, 32, 33, 31}})
    for (const auto type : {torch::kFloat32, torch::kBFloat16})
      for (const bool channels_last : {true, false}) {
        SCOPED_TRACE(::testing::Message() << channels << " channels, " << torch::toString(type)
                                          << (channels_last ? ", channels-last" : ""));
        const auto format =
            channels_last ? torch::MemoryFormat::ChannelsLast : torch::MemoryFormat::Contiguous;
        torch::manual_seed(5);
        const auto random = [&] {
          return torch::randn({batch, channels, height, width}, options(type)).contiguous(format);
        };
        Tensor given = random().requires_grad_();
        Tensor bias = torch::randn({channels}, options(torch::kFloat32)).requires_grad_();
        const Tensor expected = given.detach().to(torch::kFloat64) +
                                bias.detach().to(torch::kFloat64).view({1, -1, 1, 1});
        const Tensor out = add_channel_bias(given.clone(), bias);
        EXPECT_EQ(out.scalar_type(), type);
        EXPECT_TRUE(close_to(out.detach(), expected, type == torch::kFloat32 ? 1e-6 : 4e-3));
        const Tensor gradient = random();
        out.backward(gradient);
        EXPECT_TRUE(torch::equal(given.grad(), gradient));
        EXPECT_EQ(bias.grad().scalar_type(), torch::kFloat32);
        EXPECT_TRUE(close_to(bias.grad(), gradient.to(torch::kFloat64).sum({0, 2, 3}), 1e-5));
      }
}

INSTANTIATE_TEST_SUITE_P(Devices, ChannelBiasTest, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace remcaps
