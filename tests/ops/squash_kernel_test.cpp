// The fused squash of maps against the plain tensor code.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include "remcaps/base/error.h"
#include "remcaps/ops/squash.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

class FusedSquash : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

Tensor fused_capsules(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return squash_to_capsules(map, types, dim, {Squash::Form::kNorm, epsilon}, KernelPath::kFused);
}
Tensor plain_capsules(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return squash_to_capsules(map, types, dim, {Squash::Form::kNorm, epsilon},
                            KernelPath::kReference);
}
Tensor fused_channels(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return squash_channels(map, types, dim, {Squash::Form::kNorm, epsilon}, KernelPath::kFused);
}
Tensor plain_channels(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return squash_channels(map, types, dim, {Squash::Form::kNorm, epsilon}, KernelPath::kReference);
}

struct MapCase {
  int64_t batch, types, dim, height, width;
};

TEST_P(FusedSquash, SquashesPrimaryCapsulesAsThePlainCodeDoes) {
  for (const MapCase& c : {MapCase{5, 32, 8, 6, 6}, MapCase{1, 1, 1, 1, 1}, MapCase{3, 7, 5, 2, 9},
                           MapCase{2, 16, 16, 1, 1}})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      torch::manual_seed(c.batch);
      const Tensor values = torch::randn({c.batch, c.types * c.dim, c.height, c.width});
      const Tensor reference = values.to(torch::kFloat64).requires_grad_();
      const Tensor map = values.to(device()).contiguous(format).requires_grad_();
      const Tensor expected = plain_capsules(reference, c.types, c.dim, 1e-6);
      const Tensor found = fused_capsules(map, c.types, c.dim, 1e-6);
      EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));

      const Tensor direction = torch::randn_like(expected);
      (expected * direction).sum().backward();
      (found * direction.to(found.options())).sum().backward();
      EXPECT_TRUE(close_to(map.grad(), reference.grad(), 1e-5));
    }
}

TEST_P(FusedSquash, ADeadPrimaryCapsuleHasNoGradient) {
  const Tensor map = torch::zeros({2, 16, 3, 3}, device()).requires_grad_();
  const Tensor capsules = fused_capsules(map, 2, 8, 1e-6);
  capsules.sum().backward();
  EXPECT_EQ(capsules.abs().max().item<float>(), 0);
  EXPECT_EQ(map.grad().abs().max().item<float>(), 0);
}

TEST_P(FusedSquash, ReadsASliceOfALargerMap) {
  torch::manual_seed(1);
  const Tensor whole = torch::randn({2, 24, 5, 5}, device());
  const Tensor map = whole.slice(1, 8, 24).slice(3, 1, 4);
  EXPECT_TRUE(close_to(fused_capsules(map, 2, 8, 1e-6),
                       plain_capsules(map.to(torch::kFloat64), 2, 8, 1e-6), 1e-6));
}

TEST_P(FusedSquash, SquashesAMapWhereItLiesAsThePlainCodeDoes) {
  for (const MapCase& c :
       {MapCase{5, 32, 8, 6, 6}, MapCase{3, 16, 4, 5, 7}, MapCase{2, 24, 1, 9, 3},
        MapCase{1, 1, 1, 1, 1}, MapCase{3, 7, 5, 2, 9}, MapCase{2, 3, 16, 20, 20}})
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      torch::manual_seed(c.types);
      const Tensor values = torch::randn({c.batch, c.types * c.dim, c.height, c.width});
      const Tensor reference = values.to(torch::kFloat64).requires_grad_();
      const Tensor map = values.to(device()).contiguous(format).requires_grad_();
      const Tensor expected = plain_channels(reference, c.types, c.dim, 1e-8);
      const Tensor found = fused_channels(map, c.types, c.dim, 1e-8);
      EXPECT_EQ(found.strides(), map.strides());
      EXPECT_TRUE(close_to(found.detach(), expected.detach(), 2e-6));

      // A gradient in the plain layout, whatever the map's.
      const Tensor direction = torch::randn_like(expected, torch::MemoryFormat::Contiguous);
      (expected * direction).sum().backward();
      found.backward(direction.to(found.options()));
      EXPECT_TRUE(close_to(map.grad(), reference.grad(), 1e-5));
    }
}

TEST_P(FusedSquash, ADeadCapsuleOfAMapHasNoGradient) {
  for (const int64_t dim : {1, 8}) {
    const Tensor map = torch::zeros({2, 16, 4, 4}, device())
                           .contiguous(torch::MemoryFormat::ChannelsLast)
                           .requires_grad_();
    const Tensor squashed = fused_channels(map, 16 / dim, dim, 1e-8);
    squashed.sum().backward();
    EXPECT_EQ(squashed.abs().max().item<float>(), 0);
    EXPECT_EQ(map.grad().abs().max().item<float>(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedSquash, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

#ifdef REMCAPS_CUDA
TEST(FusedSquashCuda, TakesBfloat16MapsAndGivesTheirGradientInBfloat16) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(2);
  const Tensor map = torch::randn({4, 64, 6, 6})
                         .to(torch::Device("cuda"), torch::kBFloat16)
                         .contiguous(torch::MemoryFormat::ChannelsLast)
                         .requires_grad_();
  const Tensor reference = map.detach().to(torch::kCPU, torch::kFloat64).requires_grad_();
  const Tensor found = fused_capsules(map, 8, 8, 1e-6);
  const Tensor expected = plain_capsules(reference, 8, 8, 1e-6);
  EXPECT_EQ(found.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));
  found.square().sum().backward();
  expected.square().sum().backward();
  EXPECT_EQ(map.grad().scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(close_to(map.grad(), reference.grad(), 5e-3));
}

TEST(FusedSquashCuda, SquashesBfloat16MapsInFloat32) {
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
      const Tensor found = fused_channels(map, 32 / dim, dim, 1e-8);
      const Tensor expected = plain_channels(reference, 32 / dim, dim, 1e-8);
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

TEST(FusedSquashCpu, NamesTheShapesItCannotTake) {
  EXPECT_THROW(fused_capsules(torch::zeros({1, 10, 3, 3}), 2, 8, 1e-6), Error);
  EXPECT_THROW(fused_channels(torch::zeros({1, 10, 3, 3}), 2, 8, 1e-6), Error);
}

}  // namespace
}  // namespace remcaps
