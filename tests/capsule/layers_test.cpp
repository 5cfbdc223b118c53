#include "remcaps/base/error.h"
#include "remcaps/capsule/conv_caps.h"
#include "remcaps/capsule/decoder.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/init.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/capsule/recorder.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/capsule/routing/self_attention.h"
#include "tests/capsule/numeric.h"
#include "tests/capsule/packed_testing.h"

namespace remcaps {
namespace {

using testing::expect_close;

TEST(PrimaryCaps, CapsulesStandInOrderOfTypeRowAndColumn) {
  torch::manual_seed(1);
  PrimaryCaps layer(PrimaryCapsOptions(2, /*types=*/3, /*kernel=*/2).dim(4));
  const Tensor map = torch::randn({2, 2, 4, 5});
  const Tensor capsules = layer->forward(map);
  const CapsuleGrid grid = layer->grid(3, 4);
  ASSERT_EQ(capsules.sizes(), torch::IntArrayRef({2, 3 * 3 * 4, 4}));
  const Tensor channels = layer->conv->forward(map);
  const int64_t type = 2, y = 1, x = 3;
  const int64_t index =
      grid.offset + type * grid.stride_type + y * grid.stride_y + x * grid.stride_x;
  const Tensor raw = channels[1].narrow(0, type * 4, 4).select(1, y).select(1, x);
  expect_close(capsules[1][index], squash(raw), 1e-6);
}

TEST(FcCaps, StartsAsPublished) {
  torch::manual_seed(2);
  FcCaps layer(FcCapsOptions(200, 10));
  EXPECT_NEAR(layer->weight.std().item<double>(), 0.1, 0.002);
  EXPECT_NEAR(layer->weight.mean().item<double>(), 0.0, 0.002);
  EXPECT_TRUE((layer->routing_parameter == 0.1f).all().item<bool>());
  const auto names = layer->named_parameters().keys();
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias"}));
}

TEST(FcCaps, HasAPriorOnlyWithSelfAttentionAndABiasOnlyWhereAskedFor) {
  FcCaps attention(FcCapsOptions(4, 3).routing(SelfAttentionRouting{}));
  EXPECT_EQ(attention->named_parameters().keys(), (std::vector<std::string>{"weight", "prior"}));
  DynamicRouting none;
  none.bias = BiasUse::kNone;
  FcCaps without(FcCapsOptions(4, 3).routing(none));
  EXPECT_EQ(without->named_parameters().keys(), (std::vector<std::string>{"weight"}));
}

TEST(FcCaps, SharedMatricesEqualTheSameMatricesWrittenOut) {
  torch::manual_seed(3);
  FcCaps shared(FcCapsOptions(6, 4).child_dim(3).parent_dim(5).shared_over(3));
  FcCaps whole(FcCapsOptions(6, 4).child_dim(3).parent_dim(5));
  ASSERT_EQ(shared->weight.size(0), 2);
  {
    const torch::NoGradGuard no_grad;
    whole->weight.copy_(shared->weight.repeat_interleave(3, 0));
  }
  const Tensor children = torch::randn({2, 6, 3});
  const Tensor a = shared->forward(children).poses, b = whole->forward(children).poses;
  expect_close(a, b, 1e-6);
  a.square().sum().backward();
  b.square().sum().backward();
  expect_close(shared->weight.grad(), whole->weight.grad().view({2, 3, 4, 5, 3}).sum(1), 1e-5);
  EXPECT_THROW(FcCaps(FcCapsOptions(7, 4).shared_over(3)), Error);
}

TEST(FcCaps, PackedMatricesGiveWhatTheOthersDo) {
  torch::manual_seed(4);
  FcCaps layer(FcCapsOptions(70, 10));
  layer->eval();
  const Tensor child = torch::randn({1, 70, 8}), children = torch::randn({40, 70, 8});
  const RoutingResult expected = layer->forward(child);
  const torch::NoGradGuard no_grad;
  const Tensor many = layer->forward(children).poses;
  pack_weights(*layer);
  ASSERT_NE(layer->packed(), nullptr);
  const RoutingResult found = layer->forward(child);
  expect_close(found.poses, expected.poses, 1e-5);
  expect_close(found.coupling, expected.coupling, 1e-5);
  EXPECT_TRUE(torch::equal(layer->forward(children).poses, many));
  // A change through data() is not noticed: one image is routed with the packed copy, many are not.
  layer->weight.data().zero_();
  EXPECT_TRUE(torch::equal(layer->forward(child).poses, found.poses));
  EXPECT_FALSE(torch::equal(layer->forward(children).poses, many));
}

TEST(FcCaps, PackedMatricesAreForgottenWhenTheOthersChange) {
  FcCaps layer(FcCapsOptions(5, 3));
  testing::expect_packed_until_changed(layer, [&] { return layer->packed(); });
}

TEST(FcCaps, MatricesThatNoKernelReadsPackedAreNot) {
  DynamicRouting plain;
  plain.kernels = KernelPath::kReference;
  for (const auto& options :
       {FcCapsOptions(6, 4).routing(plain), FcCapsOptions(6, 4).routing(ScaledDistanceRouting{}),
        FcCapsOptions(6, 4).shared_over(3)}) {
    FcCaps layer(options);
    layer->pack();
    EXPECT_EQ(layer->packed(), nullptr);
  }
}

TEST(ConvCaps, OutputIsOrderedByTypeForTheNextLayer) {
  torch::manual_seed(4);
  ConvCaps layer(ConvCapsOptions(2, 3, /*kernel=*/2).child_dim(4).parent_dim(5));
  const RoutingResult result = layer->forward(torch::randn({2, 2 * 3 * 4, 4}), 3, 4);
  const Tensor children = ConvCapsImpl::as_children(result.poses);
  ASSERT_EQ(children.sizes(), torch::IntArrayRef({2, 3 * 2 * 3, 5}));
  expect_close(children[1][2 * 6 + 4], result.poses[1][4][2], 0);  // type 2, position 4
  EXPECT_THROW(layer->forward(torch::randn({2, 25, 4}), 3, 4), Error);
}

TEST(Conv2dCaps, SquashesTheComponentsOfEachCapsule) {
  torch::manual_seed(5);
  Conv2dCaps layer(Conv2dCapsOptions(6, /*types=*/2, /*dim=*/4).stride(2));
  const Tensor map = torch::randn({1, 6, 5, 7});
  const Tensor out = layer->forward(map);
  ASSERT_EQ(out.sizes(), torch::IntArrayRef({1, 8, 3, 4}));
  const Tensor raw = layer->conv->forward(map)[0].narrow(0, 4, 4).select(1, 2).select(1, 1);
  expect_close(out[0].narrow(0, 4, 4).select(1, 2).select(1, 1), squash(raw, -1, 1e-8), 1e-6);
}

TEST(Conv3dCaps, KeepsTheMapAndNamesItsParameters) {
  Conv3dCaps layer(Conv3dCapsOptions(3, 4).bias(true));
  const RoutingResult result = layer->forward(torch::randn({1, 12, 2, 3}));
  ASSERT_EQ(result.poses.sizes(), torch::IntArrayRef({1, 3, 4, 2, 3}));
  EXPECT_EQ(layer->named_parameters().keys(),
            (std::vector<std::string>{"bias", "conv.weight", "conv.bias"}));
}

TEST(Decoders, ReturnImagesInNormalisedSpaceForAnyShape) {
  torch::manual_seed(6);
  DecoderShape shape;
  shape.classes = 3;
  shape.class_dim = 4;
  shape.channels = 2;
  shape.height = 19;
  shape.width = 30;
  shape.mean = {0.5, 0.25};
  shape.std = {0.5, 2.0};
  const Tensor poses = mask_poses(torch::randn({2, 3, 4}), torch::tensor({1, 2}, torch::kInt64));
  const Tensor fc = FcDecoder(shape, {8, 16}).forward(poses);
  ASSERT_EQ(fc.sizes(), torch::IntArrayRef({2, 2, 19, 30}));
  // Sigmoid pixels in (0, 1): (0 - 0.5) / 0.5 to (1 - 0.5) / 0.5 in the first channel.
  EXPECT_LT(fc.select(1, 0).abs().max().item<float>(), 1.0f);
  EXPECT_LT((fc.select(1, 1) * 2.0 + 0.25).max().item<float>(), 1.0f);
  EXPECT_GT((fc.select(1, 1) * 2.0 + 0.25).min().item<float>(), 0.0f);
  const Tensor conv = ConvDecoder(shape).forward(poses);
  ASSERT_EQ(conv.sizes(), torch::IntArrayRef({2, 2, 19, 30}));
  shape.mean = {0.1, 0.2, 0.3};
  EXPECT_THROW(FcDecoder(shape, {8, 16}), Error);
}

TEST(Decoders, MaskKeepsOneCapsuleOfEachImage) {
  const Tensor poses = torch::ones({2, 3, 4});
  const Tensor masked = mask_poses(poses, torch::tensor({2, 0}, torch::kInt64));
  EXPECT_EQ(masked.sum().item<float>(), 8.0f);
  EXPECT_EQ(masked[0][2].sum().item<float>(), 4.0f);
  EXPECT_EQ(masked[1][0].sum().item<float>(), 4.0f);
}

TEST(Initialisation, HeNormalIsCutAndHasTheRightDeviation) {
  torch::manual_seed(7);
  Tensor tensor = torch::empty({100000});
  he_normal_(tensor, 50);
  EXPECT_NEAR(tensor.std().item<double>(), 0.2, 0.002);
  EXPECT_LE(tensor.abs().max().item<double>(), 2 * 0.2 / 0.8796 + 1e-4);
  glorot_uniform_(tensor, 30, 24);
  EXPECT_NEAR(tensor.max().item<double>(), 1.0 / 3, 1e-4);
}

TEST(RoutingRecorder, WantsOneQuantizerForEachRoutingLayer) {
  ForwardOptions options;
  options.quantizers = {Quantizer::uniform(11)};
  EXPECT_THROW(RoutingRecorder("net", options, 2), Error);
  RoutingRecorder recorder("net", options, 1);
  EXPECT_EQ(recorder.next().quantizer->levels(), 11);
}

TEST(RoutingRecorder, KeepsTracesOnlyOnRequest) {
  RoutingResult result;
  result.poses = torch::zeros({1, 2, 3});
  result.coupling = torch::full({1, 1, 2}, 0.5f, torch::requires_grad());
  const Tensor children = torch::tensor({{{3.0f, 4.0f}}});
  ForwardOptions options;
  RoutingRecorder off("net", options, 1);
  off.record("class", children, result);
  EXPECT_TRUE(off.take().empty());
  options.trace = true;
  RoutingRecorder on("net", options, 1);
  on.record("class", children, result);
  const auto traces = on.take();
  ASSERT_EQ(traces.size(), 1u);
  EXPECT_EQ(traces[0].layer, "class");
  EXPECT_EQ(traces[0].child_activations.item<float>(), 5.0f);
  EXPECT_FALSE(traces[0].coupling.requires_grad());
  EXPECT_FALSE(traces[0].convolutional());
}

}  // namespace
}  // namespace remcaps
