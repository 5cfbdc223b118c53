// The squash of maps and the margin loss against the capsule layer's plain tensor code.
#include "remcaps/ops/pointwise.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <limits>

#include "remcaps/base/error.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/capsule/squash.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

class FusedPointwise : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

// What PrimaryCaps does with its convolution's output.
Tensor plain_primary_squash(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  const int64_t batch = map.size(0), places = map.size(2) * map.size(3);
  return squash(map.reshape({batch, types, dim, places}), {2}, epsilon)
      .transpose(2, 3)
      .reshape({batch, types * places, dim});
}

struct MapCase {
  int64_t batch, types, dim, height, width;
};

TEST_P(FusedPointwise, SquashesPrimaryCapsulesAsThePlainCodeDoes) {
  for (const MapCase& c : {MapCase{5, 32, 8, 6, 6}, MapCase{1, 1, 1, 1, 1}, MapCase{3, 7, 5, 2, 9},
                           MapCase{2, 16, 16, 1, 1}})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      torch::manual_seed(c.batch);
      const Tensor values = torch::randn({c.batch, c.types * c.dim, c.height, c.width});
      const Tensor reference = values.to(torch::kFloat64).requires_grad_();
      const Tensor map = values.to(device()).contiguous(format).requires_grad_();
      const Tensor expected = plain_primary_squash(reference, c.types, c.dim, 1e-6);
      const Tensor found = fused_primary_squash(map, c.types, c.dim, 1e-6);
      EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));

      const Tensor direction = torch::randn_like(expected);
      (expected * direction).sum().backward();
      (found * direction.to(found.options())).sum().backward();
      EXPECT_TRUE(close_to(map.grad(), reference.grad(), 1e-5));
    }
}

TEST_P(FusedPointwise, ADeadPrimaryCapsuleHasNoGradient) {
  const Tensor map = torch::zeros({2, 16, 3, 3}, device()).requires_grad_();
  const Tensor capsules = fused_primary_squash(map, 2, 8, 1e-6);
  capsules.sum().backward();
  EXPECT_EQ(capsules.abs().max().item<float>(), 0);
  EXPECT_EQ(map.grad().abs().max().item<float>(), 0);
}

TEST_P(FusedPointwise, ReadsASliceOfALargerMap) {
  torch::manual_seed(1);
  const Tensor whole = torch::randn({2, 24, 5, 5}, device());
  const Tensor map = whole.slice(1, 8, 24).slice(3, 1, 4);
  EXPECT_TRUE(close_to(fused_primary_squash(map, 2, 8, 1e-6),
                       plain_primary_squash(map.to(torch::kFloat64), 2, 8, 1e-6), 1e-6));
}

// What Conv2dCaps does with its convolution's output.
Tensor plain_channel_squash(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return squash(map.unflatten(1, {types, dim}), {2}, epsilon).flatten(1, 2);
}

TEST_P(FusedPointwise, SquashesAMapWhereItLiesAsThePlainCodeDoes) {
  for (const MapCase& c :
       {MapCase{5, 32, 8, 6, 6}, MapCase{3, 16, 4, 5, 7}, MapCase{2, 24, 1, 9, 3},
        MapCase{1, 1, 1, 1, 1}, MapCase{3, 7, 5, 2, 9}, MapCase{2, 3, 16, 20, 20}})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      torch::manual_seed(c.types);
      const Tensor values = torch::randn({c.batch, c.types * c.dim, c.height, c.width});
      const Tensor reference = values.to(torch::kFloat64).requires_grad_();
      const Tensor map = values.to(device()).contiguous(format).requires_grad_();
      const Tensor expected = plain_channel_squash(reference, c.types, c.dim, 1e-8);
      const Tensor found = fused_channel_squash(map, c.types, c.dim, 1e-8);
      EXPECT_EQ(found.strides(), map.strides());
      EXPECT_TRUE(close_to(found.detach(), expected.detach(), 2e-6));

      // A gradient in the plain layout, whatever the map's.
      const Tensor direction = torch::randn_like(expected, torch::MemoryFormat::Contiguous);
      (expected * direction).sum().backward();
      found.backward(direction.to(found.options()));
      EXPECT_TRUE(close_to(map.grad(), reference.grad(), 1e-5));
    }
}

TEST_P(FusedPointwise, ADeadCapsuleOfAMapHasNoGradient) {
  for (const int64_t dim : {1, 8}) {
    const Tensor map = torch::zeros({2, 16, 4, 4}, device())
                           .contiguous(torch::MemoryFormat::ChannelsLast)
                           .requires_grad_();
    const Tensor squashed = fused_channel_squash(map, 16 / dim, dim, 1e-8);
    squashed.sum().backward();
    EXPECT_EQ(squashed.abs().max().item<float>(), 0);
    EXPECT_EQ(map.grad().abs().max().item<float>(), 0);
  }
}

TEST_P(FusedPointwise, MarginLossAndItsGradientAgreeWithThePlainCode) {
  const MarginOptions margins{.m_plus = 0.95, .m_minus = 0.05, .lambda = 0.8};
  for (const auto& [batch, classes] :
       {std::pair<int64_t, int64_t>{128, 10}, {1, 1}, {37, 200}, {700, 5}}) {
    torch::manual_seed(batch);
    const Tensor values = torch::rand({batch, classes});
    const Tensor labels = torch::randint(classes, {batch}, torch::kInt64);
    const Tensor reference = values.to(torch::kFloat64).requires_grad_();
    const Tensor activations = values.to(device()).requires_grad_();
    const Tensor expected = margin_loss(reference, labels, margins) * 3;
    const Tensor found = fused_margin_loss(activations, labels.to(device()), margins.m_plus,
                                           margins.m_minus, margins.lambda) *
                         3;
    EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));
    expected.backward();
    found.backward();
    EXPECT_TRUE(close_to(activations.grad(), reference.grad(), 1e-6));
  }
}

TEST_P(FusedPointwise, MarginLossOfNanIsNan) {
  const Tensor activations = torch::full({2, 3}, std::numeric_limits<float>::quiet_NaN(), device());
  const Tensor labels = torch::zeros({2}, torch::TensorOptions(torch::kInt64).device(device()));
  EXPECT_TRUE(torch::isnan(fused_margin_loss(activations, labels, 0.9, 0.1, 0.5)).item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedPointwise, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

#ifdef REMCAPS_CUDA
TEST(FusedPointwiseCuda, TakesBfloat16MapsAndGivesTheirGradientInBfloat16) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(2);
  const Tensor map = torch::randn({4, 64, 6, 6})
                         .to(torch::Device("cuda"), torch::kBFloat16)
                         .contiguous(torch::MemoryFormat::ChannelsLast)
                         .requires_grad_();
  const Tensor reference = map.detach().to(torch::kCPU, torch::kFloat64).requires_grad_();
  const Tensor found = fused_primary_squash(map, 8, 8, 1e-6);
  const Tensor expected = plain_primary_squash(reference, 8, 8, 1e-6);
  EXPECT_EQ(found.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));
  found.square().sum().backward();
  expected.square().sum().backward();
  EXPECT_EQ(map.grad().scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(close_to(map.grad(), reference.grad(), 5e-3));
}

TEST(FusedPointwiseCuda, SquashesBfloat16MapsInFloat32) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast})
    for (const int64_t dim : {1, 4, 8, 16}) {
      SCOPED_TRACE(dim);
      torch::manual_seed(dim);
      const Tensor map = torch::randn({3, 32, 6, 5})
                             .to(torch::Device("cuda"), torch::kBFloat16)
                             .contiguous(format)
                             .requires_grad_();
      const Tensor reference = map.detach().to(torch::kCPU, torch::kFloat64).requires_grad_();
      const Tensor found = fused_channel_squash(map, 32 / dim, dim, 1e-8);
      const Tensor expected = plain_channel_squash(reference, 32 / dim, dim, 1e-8);
      EXPECT_EQ(found.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(found.strides(), map.strides());
      EXPECT_TRUE(close_to(found.detach(), expected.detach(), 4e-3));  // one rounding
      const Tensor direction = torch::randn_like(expected).to(torch::kBFloat16);
      found.backward(direction.to(found.device()));
      expected.backward(direction.to(torch::kFloat64));
      EXPECT_EQ(map.grad().scalar_type(), torch::kBFloat16);
      EXPECT_TRUE(close_to(map.grad(), reference.grad(), 4e-3));
    }
}
#endif

TEST(FusedPointwiseCpu, NamesTheShapesItCannotTake) {
  EXPECT_THROW(fused_primary_squash(torch::zeros({1, 10, 3, 3}), 2, 8, 1e-6), Error);
  EXPECT_THROW(fused_channel_squash(torch::zeros({1, 10, 3, 3}), 2, 8, 1e-6), Error);
  EXPECT_THROW(
      fused_margin_loss(torch::zeros({2, 3}), torch::zeros({3}, torch::kInt64), 0.9, 0.1, 0.5),
      Error);
}

}  // namespace
}  // namespace remcaps
