#include "remcaps/capsule/convolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/kernels/convolution/tile_product.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/torch/compat.h"
#include "tests/capsule/packed_testing.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

#ifdef REMCAPS_CUDA
class ConvolveCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    torch::manual_seed(1);
  }
  const torch::Device device_{"cuda"};
};

TEST_F(ConvolveCuda, Bfloat16ConvolutionIsCloseToFloat32AndItsGradientsAreFloat32) {
  // A map of few channels that needs no gradient has its own way.
  for (const auto& [channels, first] : {std::pair{1, true}, {3, true}, {3, false}, {32, false}}) {
    SCOPED_TRACE(::testing::Message() << channels << " channels, first layer: " << first);
    torch::nn::Conv2d layer(torch::nn::Conv2dOptions(channels, 64, 5).stride(2).padding(1));
    layer->to(device_);
    const Tensor images = torch::randn({8, channels, 14, 14}, device_).requires_grad_(!first);
    const Tensor expected = convolve(*layer, images, KernelPath::kReference);
    const Tensor direction = torch::randn_like(expected);
    (expected * direction).sum().backward();
    const Tensor weight_gradient = layer->weight.grad(), bias_gradient = layer->bias.grad();
    const Tensor image_gradient = images.grad();
    layer->weight.mutable_grad() = layer->bias.mutable_grad() = images.mutable_grad() = Tensor();

    Tensor found;
    {
      const Autocast autocast(true, device_);
      found = convolve(*layer, images, KernelPath::kFused);
    }
    EXPECT_EQ(found.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(found.is_contiguous(torch::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(close_to(found.detach(), expected.detach(), 2e-2));
    (found.to(torch::kFloat32) * direction).sum().backward();
    EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
    EXPECT_TRUE(layer->weight.grad().is_contiguous());
    EXPECT_TRUE(close_to(layer->weight.grad(), weight_gradient, 2e-2));
    EXPECT_TRUE(close_to(layer->bias.grad(), bias_gradient, 2e-2));
    if (!first) {
      EXPECT_TRUE(close_to(images.grad(), image_gradient, 2e-2));
    }
  }
}

TEST_F(ConvolveCuda, CapsulesAndRoutingStayFloat32BehindBfloat16Convolutions) {
  for (const auto kernels : {KernelPath::kFused, KernelPath::kReference})
    for (const RoutingPtr& routing : {RoutingPtr(DynamicRouting{.kernels = kernels}),
                                      RoutingPtr(ScaledDistanceRouting{.kernels = kernels})}) {
      PrimaryCaps primary(PrimaryCapsOptions(16, 4, 3).kernels(kernels));
      FcCaps classes(FcCapsOptions(4 * 36, 5).routing(routing));
      primary->to(device_);
      classes->to(device_);
      const Tensor map = torch::randn({6, 16, 8, 8}, device_);
      const Tensor expected = classes->forward(primary->forward(map)).poses.detach();
      const Autocast autocast(true, device_);
      const Tensor children = primary->forward(map);
      EXPECT_EQ(children.scalar_type(), torch::kFloat32);
      const Tensor poses = classes->forward(children).poses;
      EXPECT_EQ(poses.scalar_type(), torch::kFloat32);
      EXPECT_TRUE(close_to(poses.detach(), expected, 5e-2));
    }
}
#endif

TEST(Convolve, Bfloat16OnACpuIsForWhereNoGradientIsNeeded) {
  torch::manual_seed(1);
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(32, 64, 3).stride(2));
  const Tensor map = torch::randn({8, 32, 13, 13});
  const Tensor expected = convolve_relu(*layer, map, KernelPath::kFused).detach();
  const Bf16Convolutions on(true);
  EXPECT_TRUE(torch::equal(convolve_relu(*layer, map, KernelPath::kFused), expected));
  const torch::NoGradGuard no_grad;
  const Tensor found = convolve_relu(*layer, map, KernelPath::kFused);
  EXPECT_EQ(found.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(close_to(found, expected, 2e-2));
  EXPECT_EQ(torch::equal(found, expected), !cpu_has_bf16_convolution());
  EXPECT_TRUE(close_to(convolve_relu(*layer, map, KernelPath::kReference), expected, 1e-5));
}

// A layer with a tenth of its weights left.
Convolution pruned_layer() {
  Convolution layer(torch::nn::Conv2dOptions(8, 12, 3).stride(2).padding(1));
  const torch::NoGradGuard no_grad;
  layer->weight.mul_(torch::rand_like(layer->weight) < 0.1);
  layer->eval();
  return layer;
}

TEST(Convolve, PackedWeightsGiveWhatTheOthersDo) {
  torch::manual_seed(2);
  Convolution layer = pruned_layer();
  const Tensor map = torch::randn({3, 8, 9, 9});
  const Tensor expected = convolve_relu(*layer, map, KernelPath::kReference).detach();
  pack_weights(*layer);
  ASSERT_NE(layer->sparse(), nullptr);
  EXPECT_TRUE(convolve_relu(*layer, map, KernelPath::kFused).requires_grad());
  const torch::NoGradGuard no_grad;
  const Tensor found = convolve_relu(*layer, map, KernelPath::kFused);
  EXPECT_TRUE(close_to(found, expected, 1e-5));
  EXPECT_TRUE(torch::equal(
      found, sparse_convolution(map, *layer->sparse(), layer->bias, {2, 2}, {1, 1}, true)));
}

// A layer with all of its weights, whose filters fill whole tiles on any CPU.
Convolution dense_layer(int64_t channels = 8) {
  Convolution layer(torch::nn::Conv2dOptions(channels, 64, 3).stride(2));
  layer->eval();
  return layer;
}

TEST(Convolve, PackedFiltersGiveWhatTheOthersDo) {
  torch::manual_seed(2);
  for (const int64_t channels : {1, 8, 67}) {
    SCOPED_TRACE(channels);
    Convolution layer = dense_layer(channels);
    const Tensor maps = torch::randn({9, channels, 9, 10}), map = maps.narrow(0, 3, 1);
    const Tensor expected = convolve_relu(*layer, map, KernelPath::kReference).detach();
    const Tensor many = convolve_relu(*layer, maps, KernelPath::kFused).detach();
    pack_weights(*layer);
    ASSERT_NE(layer->filters(), nullptr);
    EXPECT_EQ(layer->sparse(), nullptr);
    EXPECT_TRUE(convolve_relu(*layer, map, KernelPath::kFused).requires_grad());
    const torch::NoGradGuard no_grad;
    const Tensor found = convolve_relu(*layer, map, KernelPath::kFused);
    EXPECT_TRUE(close_to(found, expected, 1e-5));
    EXPECT_TRUE(torch::equal(found, many.narrow(0, 3, 1)));
    EXPECT_TRUE(torch::equal(convolve_relu(*layer, maps, KernelPath::kFused), many));
    // A change through data() is not noticed, so the result shows which copy was read.
    layer->weight.data().zero_();
    EXPECT_TRUE(torch::equal(convolve_relu(*layer, map, KernelPath::kFused), found));
    EXPECT_TRUE(torch::equal(convolve_relu(*layer, maps, KernelPath::kFused), many));
  }
}

TEST(Convolve, WhereAThirdIsLeftASingleMapIsSparseAndManyAreNot) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  Convolution layer = dense_layer();
  layer->weight.mul_(torch::rand_like(layer->weight) < 0.3);
  layer->pack();
  ASSERT_NE(layer->sparse(), nullptr);
  const Tensor maps = torch::randn({9, 8, 9, 9}), map = maps.narrow(0, 0, 1);
  EXPECT_TRUE(torch::equal(
      convolve(*layer, map, KernelPath::kFused),
      sparse_convolution(map, *layer->sparse(), layer->bias, {2, 2}, {0, 0}, /*relu=*/false)));
  EXPECT_TRUE(
      torch::equal(convolve(*layer, maps, KernelPath::kFused),
                   panel_convolution(maps, layer->weight, layer->bias, {2, 2}, layer->filters())));
}

TEST(Convolve, PackedWeightsAreNotReadWhereABiasAloneWantsItsGradient) {
  torch::manual_seed(2);
  for (Convolution layer : {pruned_layer(), dense_layer()}) {
    layer->weight.requires_grad_(false);
    layer->pack();
    const Tensor out = convolve(*layer, torch::randn({1, 8, 9, 9}), KernelPath::kFused);
    ASSERT_TRUE(out.requires_grad());
    out.sum().backward();
    const double places = static_cast<double>(out.size(2) * out.size(3));
    EXPECT_TRUE(close_to(layer->bias.grad(), torch::full_like(layer->bias, places), 1e-6));
  }
}

TEST(Convolve, PackedWeightsAreForgottenWhenTheOthersChange) {
  torch::manual_seed(2);
  Convolution pruned = pruned_layer(), dense = dense_layer();
  testing::expect_packed_until_changed(pruned, [&] { return pruned->sparse(); });
  testing::expect_packed_until_changed(dense, [&] { return dense->filters(); });
}

TEST(Convolve, WeightsArePackedOnlyAsSomeKernelReadsThem) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  struct Case {
    torch::nn::Conv2dOptions options;
    double left;
    bool sparse, filters;
  };
  const auto conv = [](int64_t channels, int64_t filters) {
    return torch::nn::Conv2dOptions(channels, filters, 3);
  };
  const Case cases[] = {
      {conv(8, 64), 1.0, false, true},
      {conv(8, 64), 0.4, false, true},
      {conv(8, 64), 0.3, true, true},  // for few places, and for many
      {conv(8, 64), 0.1, true, false},
      {conv(1, 64), 0.4, true, false},  // windows have to be gathered for either
      {conv(8, 64).padding(1), 1.0, false, false},
      {conv(8, 64).padding(1), 0.4, true, false},  // beside oneDNN more of them pay
      {conv(8, 64).groups(8), 0.0, false, false},
      {conv(8, 64).dilation(2), 1.0, false, false},
      {conv(8, kernels::tile_width() + 1), 1.0, false, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << &c - cases << ", left: " << c.left);
    Convolution layer(c.options);
    layer->weight.mul_(torch::rand_like(layer->weight) < c.left);
    layer->pack();
    EXPECT_EQ(layer->sparse() != nullptr, c.sparse);
    EXPECT_EQ(layer->filters() != nullptr, c.filters);
  }
}

TEST(Convolve, AKernelLargerThanTheMapIsToldAsByTheLayerItself) {
  const auto error_of = [](int64_t stride, const Tensor& map, KernelPath kernels,
                           bool packed = false) -> std::string {
    const torch::NoGradGuard no_grad;
    Convolution layer(torch::nn::Conv2dOptions(8, 64, 9).stride(stride));
    if (packed) layer->pack();
    try {
      convolve(*layer, map, kernels);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  // Too small in both directions, by less than a stride, and in one of them.
  for (const auto& [stride, height, width] :
       {std::tuple{1, 3, 3}, {2, 8, 8}, {2, 8, 200}, {1, 200, 3}}) {
    const Tensor map = torch::randn({64, 8, height, width});
    const std::string expected = error_of(stride, map, KernelPath::kReference);
    EXPECT_THAT(expected, ::testing::HasSubstr("Kernel size"));
    EXPECT_EQ(error_of(stride, map, KernelPath::kFused), expected) << height << " x " << width;
    EXPECT_EQ(error_of(stride, map, KernelPath::kFused, /*packed=*/true), expected);
  }
}

TEST(Convolve, AutocastOfAGpuIsNoneOfACpus) {
  EXPECT_FALSE(cuda_autocast_is_on(torch::kCPU));
  EXPECT_FALSE(NoCudaAutocast(torch::kCPU).was_on());
}

}  // namespace
}  // namespace remcaps
