// Networks with weights of 8 bits, and networks whose couplings are the same for all images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/int8_convolution.h"
#include "tests/runtime/exported.h"

namespace remcaps {
namespace {

using kernels::ConvolutionShape;
using kernels::MapStrides;
using testing::floats_of;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Filters {
  std::vector<int8_t> bytes;
  std::vector<float> scales, bias;
};

Filters random_filters(const ConvolutionShape& shape, std::mt19937& random) {
  Filters filters;
  filters.bytes.resize(static_cast<size_t>(shape.filters * shape.channels * shape.taps()));
  for (int8_t& byte : filters.bytes) byte = static_cast<int8_t>(random() % 255 - 127);
  for (int64_t f = 0; f < shape.filters; ++f) {
    filters.scales.push_back(0.01F + static_cast<float>(f) / 1000);
    filters.bias.push_back(static_cast<float>(f) - 3);
  }
  return filters;
}

std::vector<float> convolved(const ConvolutionShape& shape, const std::vector<float>& images,
                             bool channels_last, const Filters& filters, bool relu,
                             kernels::ByteProduct product) {
  const int64_t c = shape.channels, h = shape.height, w = shape.width;
  std::vector<float> values = images;  // [B, C, H, W]
  const kernels::cpu::MapView map{
      values.data(),
      shape.batch,
      c,
      h,
      w,
      channels_last ? MapStrides{c * h * w, 1, w * c, c} : MapStrides{c * h * w, h * w, w, 1}};
  if (channels_last) {
    const float* from = images.data();
    for (int64_t image = 0; image < shape.batch; ++image)
      for (int64_t channel = 0; channel < c; ++channel)
        for (int64_t y = 0; y < h; ++y)
          for (int64_t x = 0; x < w; ++x) *map.at(image, channel, y, x) = *from++;
  }
  const kernels::cpu::ByteFilters packed(shape, filters.bytes, filters.scales);
  std::vector<float> out(static_cast<size_t>(shape.places() * shape.filters));
  kernels::cpu::byte_convolution(shape, map, packed, filters.bias.data(), relu, product,
                                 out.data());
  return out;
}

// The same with torch, on the rounded image.
std::vector<float> expected_maps(const ConvolutionShape& shape, const std::vector<float>& images,
                                 const Filters& filters, bool relu) {
  const Tensor map =
      torch::tensor(images).view({shape.batch, shape.channels, shape.height, shape.width});
  Tensor rounded = torch::empty_like(map);
  for (int64_t image = 0; image < shape.batch; ++image) {
    const bool negative = map[image].min().item<float>() < 0;
    const Tensor scale = map[image].abs().max() / (negative ? 127 : 255);
    rounded[image] = torch::floor(map[image] / scale + 0.5) * scale;
  }
  std::vector<float> weight(filters.bytes.begin(), filters.bytes.end());
  const size_t of_filter = weight.size() / filters.scales.size();
  for (size_t n = 0; n < weight.size(); ++n) weight[n] *= filters.scales[n / of_filter];
  Tensor out = torch::conv2d(rounded,
                             torch::tensor(weight).view({shape.filters, shape.channels,
                                                         shape.kernel_height, shape.kernel_width}),
                             torch::tensor(filters.bias), {shape.stride_y, shape.stride_x},
                             {shape.padding_y, shape.padding_x});
  if (relu) out = torch::relu(out);
  return floats_of(out.permute({0, 2, 3, 1}));
}

TEST(ByteConvolution, IsTheConvolutionOfTheRoundedImage) {
  std::mt19937 random(4);
  for (const bool negative : {false, true})
    for (const bool channels_last : {false, true}) {
      const ConvolutionShape shape{.batch = 5,
                                   .height = 9,
                                   .width = 17,
                                   .channels = negative ? 6 : 8,
                                   .filters = 35,
                                   .kernel_height = 3,
                                   .kernel_width = 5,
                                   .stride_y = 2,
                                   .stride_x = 1,
                                   .padding_y = negative ? 1 : 0,
                                   .padding_x = 2};
      std::vector<float> images(
          static_cast<size_t>(shape.batch * shape.channels * shape.height * shape.width));
      for (float& x : images)
        x = std::uniform_real_distribution<float>(negative ? -1 : 0, 2)(random);
      std::fill_n(images.begin(), images.size() / 5, 0.0F);  // the first image is blank
      const Filters filters = random_filters(shape, random);
      const auto plain =
          convolved(shape, images, channels_last, filters, negative, kernels::plain_byte_product());
      const auto expected = expected_maps(shape, images, filters, negative);
      ASSERT_EQ(plain.size(), expected.size());
      for (size_t n = 0; n < plain.size(); ++n) {
        if (std::isnan(expected[n])) continue;  // 0 / 0 in the blank image
        ASSERT_NEAR(plain[n], expected[n], 1e-3 + 2e-3 * std::abs(expected[n]));
      }
      for (size_t f = 0; f < 35; ++f)
        EXPECT_EQ(plain[f], negative ? std::max(0.0F, filters.bias[f]) : filters.bias[f]);
      const kernels::ByteProduct fast = kernels::byte_product() != nullptr
                                            ? kernels::byte_product()
                                            : kernels::plain_byte_product();
      EXPECT_EQ(convolved(shape, images, channels_last, filters, negative, fast), plain);
      ConvolutionShape one = shape;
      one.batch = 1;
      const auto floats = static_cast<int64_t>(images.size() / 5);
      const auto alone = convolved(one, {images.end() - floats, images.end()}, channels_last,
                                   filters, negative, kernels::plain_byte_product());
      EXPECT_TRUE(std::equal(alone.rbegin(), alone.rend(), plain.rbegin()));
    }
}

TEST(RoundedBytes, AreWithinHalfAStepOfTheValues) {
  std::mt19937 random(9);
  FloatTensor tensor{{3, 4, 5}, {}};
  for (int n = 0; n < 60; ++n)
    tensor.values.push_back(
        n < 20 || n % 3 == 0 ? 0 : std::uniform_real_distribution<float>(-2, 2)(random));
  const ByteTensor packed = round_to_bytes(tensor);
  for (size_t n = 0; n < 60; ++n)
    EXPECT_NEAR(static_cast<float>(packed.values[n]) * packed.scales[n / 20], tensor.values[n],
                packed.scales[n / 20] * 0.501F);
  EXPECT_TRUE(compress_bytes(packed).has_value());
}

class ChangedNetwork : public testing::SmallNetwork {
 protected:
  ChangedNetwork() : SmallNetwork(/*conv_channels=*/16, /*seed=*/3) {}

  // Weights of four dimensions in 8 bits, with their zeros or without.
  std::filesystem::path write_bytes(const NetworkData& network, bool sparse) const {
    TensorViews views;
    std::map<std::string, ByteTensor> bytes;
    std::map<std::string, SparseBytes> left;
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const auto& [name, tensor] : network.tensors) {
      if (tensor.shape.size() < 4) {
        views[name] = {ElementType::kFloat32, tensor.shape,
                       std::as_bytes(std::span(tensor.values))};
        continue;
      }
      const ByteTensor& packed = bytes[name] = round_to_bytes(tensor);
      views[name + ".scales"] = {
          ElementType::kFloat32, {tensor.shape[0]}, std::as_bytes(std::span(packed.scales))};
      if (!sparse) {
        views[name] = {ElementType::kInt8, tensor.shape, std::as_bytes(std::span(packed.values))};
        continue;
      }
      const SparseBytes& kept = left[name] = *compress_bytes(packed);
      views[name + ".bits"] = {ElementType::kUInt8,
                               {static_cast<int64_t>(kept.bits.size())},
                               std::as_bytes(std::span(kept.bits))};
      views[name + ".values"] = {ElementType::kInt8,
                                 {static_cast<int64_t>(kept.values.size())},
                                 std::as_bytes(std::span(kept.values))};
      shapes[name] = tensor.shape;
    }
    Metadata metadata = compressed_metadata(shapes);
    metadata["graph"] = network.graph.to_text();
    write_safetensors(folder_ / "bytes.safetensors", views, metadata);
    return folder_ / "bytes.safetensors";
  }
};

TEST_F(ChangedNetwork, AnswersNearlyTheSameWithBytes) {
  const std::vector<float> images = floats_of(torch::rand({6, 1, 20, 20}));
  const runtime::Answer expected = runtime::Network(file_).run(images);
  const runtime::Answer found = runtime::Network(write_bytes(exported(), false)).run(images);
  for (size_t j = 0; j < expected.lengths.size(); ++j)
    EXPECT_NEAR(found.lengths[j], expected.lengths[j], 0.02);
  EXPECT_NE(found.lengths, expected.lengths);
  const runtime::Network network(write_bytes(exported(), false));
  const runtime::Answer alone = network.run(std::span(images).subspan(800, 400));
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(alone.lengths[j], found.lengths[6 + j], 1e-6);
}

TEST_F(ChangedNetwork, ReadsBytesWithoutTheirZeros) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model_->named_parameters())
    if (item.value().dim() == 4) item.value().mul_(torch::rand_like(item.value()).gt(0.7));
  NetworkData network = exported();
  for (auto& [name, tensor] : network.tensors)
    tensor.values = floats_of(model_->named_parameters()[name]);
  // The runtime computes with these in float32: what libtorch gives with the same weights.
  const runtime::Network bytes(write_bytes(network, true));
  for (const auto& item : model_->named_parameters()) {
    if (item.value().dim() < 4) continue;
    const Tensor rows = item.value().flatten(1);
    const Tensor scale = (rows.abs().amax(1, true) / 127).clamp_min(1e-12);
    rows.copy_(torch::round(rows / scale) * scale);
  }
  const Tensor images = torch::rand({4, 1, 20, 20});
  const std::vector<float> expected = floats_of(model_->forward(images).activations);
  const std::vector<float> found = bytes.run(floats_of(images)).lengths;
  for (size_t j = 0; j < found.size(); ++j) EXPECT_NEAR(found[j], expected[j], 1e-5);
}

TEST_F(ChangedNetwork, HasTheSameAnswersWithAFewZerosLeftOut) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : model_->named_parameters())
    if (item.value().dim() == 4) item.value().mul_(torch::rand_like(item.value()).gt(0.3));
  NetworkData network = exported();
  for (auto& [name, tensor] : network.tensors)
    tensor.values = floats_of(model_->named_parameters()[name]);
  const std::vector<float> images = floats_of(torch::rand({3, 1, 20, 20}));
  const auto whole = runtime::Network(write_bytes(network, false)).run(images).lengths;
  EXPECT_EQ(runtime::Network(write_bytes(network, true)).run(images).lengths, whole);
}

TEST_F(ChangedNetwork, RefusesBytesWithoutScales) {
  const SafetensorsFile whole(write_bytes(exported(), false));
  TensorViews tensors = whole.tensors();
  tensors.erase("primary.conv.weight.scales");
  write_safetensors(folder_ / "damaged", tensors, whole.metadata());
  try {
    const runtime::Network network(folder_ / "damaged");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no scale"));
  }
}

// Couplings that are those of an image give the image's own answer; all images have them.
TEST_F(ChangedNetwork, RoutesWithFixedCouplings) {
  const runtime::Network original(file_);
  const std::vector<float> images = floats_of(torch::rand({3, 1, 20, 20}));
  const runtime::RunOptions options{.couplings = true, .quantize = true};
  const runtime::Answer expected = original.run(images, {.couplings = true});
  NetworkData network = exported();
  const runtime::RoutingLayer& layer = original.routing_layers()[0];
  const auto size = static_cast<size_t>(layer.couplings());
  const std::vector<float> second(expected.couplings[0].begin() + static_cast<int64_t>(size),
                                  expected.couplings[0].begin() + 2 * static_cast<int64_t>(size));
  for (GraphNode& node : network.graph.nodes)
    if (is_routing(node)) node.tensors["coupling"] = "class.coupling";
  network.tensors["class.coupling"] = {{layer.children, layer.parents}, second};
  testing::write_network(folder_ / "fixed", network);
  const runtime::Network fixed(folder_ / "fixed");
  const runtime::Answer found = fixed.run(images, options);
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(found.lengths[3 + j], expected.lengths[3 + j], 1e-5);
  EXPECT_GT(std::abs(found.lengths[0] - expected.lengths[0]), 1e-6);
  for (size_t n = 0; n < found.couplings[0].size(); ++n)
    ASSERT_EQ(found.couplings[0][n], second[n % size]);
  EXPECT_EQ(found.lengths, fixed.run(images).lengths);

  // Scaled-distance routing limits votes before they are weighted, so that it cannot be done in one.
  for (GraphNode& node : network.graph.nodes)
    if (is_routing(node)) node.op = "scaled_distance_routing";
  testing::write_network(folder_ / "scaled", network);
  EXPECT_THAT([&] { runtime::Network(folder_ / "scaled"); },
              ThrowsMessage<Error>(HasSubstr("dynamic routing only")));
}

}  // namespace
}  // namespace remcaps
