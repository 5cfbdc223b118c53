// Sparse convolutions of 16 images in the lanes of a register, compared with those of one image at a
// time, which have the same bits, and with loops in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "remcaps/kernels/convolution/lane_convolution.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels {
namespace {

constexpr int64_t kImages = cpu::kLaneImages;

std::vector<float> random_floats(int64_t count, double density, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.5F);
  std::bernoulli_distribution is_left(density);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = is_left(random) ? normal(random) : 0.0F;
  return values;
}

// One element of the result, from a map [B, C, H, W].
double expected_at(const ConvolutionShape& s, const std::vector<float>& map,
                   const std::vector<float>& weight, int64_t image, int64_t f, int64_t y,
                   int64_t x) {
  double sum = 0;
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t ky = 0; ky < s.kernel_height; ++ky)
      for (int64_t kx = 0; kx < s.kernel_width; ++kx) {
        const int64_t row = (image * s.channels + c) * s.height + y * s.stride_y + ky;
        const int64_t tap = ((f * s.channels + c) * s.kernel_height + ky) * s.kernel_width + kx;
        sum += static_cast<double>(map[static_cast<size_t>(row * s.width + x * s.stride_x + kx)]) *
               weight[static_cast<size_t>(tap)];
      }
  return sum;
}

// `in_lanes`: the map has the layout [C, H, W, 16].
void expect_bits_of_single_images(const ConvolutionShape& s, double density, bool with_bias,
                                  bool relu, bool in_lanes) {
  SCOPED_TRACE(::testing::Message()
               << s.channels << " channels of " << s.height << "x" << s.width << ", " << s.filters
               << " filters of " << s.kernel_height << "x" << s.kernel_width << ", strides "
               << s.stride_y << " and " << s.stride_x << ", density " << density << ", in lanes "
               << in_lanes);
  ASSERT_TRUE(cpu::LaneWeights::can_be_made(s));
  std::mt19937 random(11);
  const int64_t image_floats = s.channels * s.height * s.width;
  const std::vector<float> map = random_floats(kImages * image_floats, 1, random);
  const std::vector<float> weight =
      random_floats(s.filters * s.channels * s.taps(), density, random);
  const std::vector<float> bias_values = random_floats(s.filters, 1, random);
  const float* bias = with_bias ? bias_values.data() : nullptr;
  const cpu::SparseWeights sparse(s, weight.data());

  const MapStrides rows{image_floats, s.height * s.width, s.width, 1};
  const int64_t places = s.out_height() * s.out_width();
  std::vector<float> expected(static_cast<size_t>(kImages * s.filters * places));
  cpu::sparse_convolution(s, rows, map.data(), sparse, cpu::sparse_starts(s, sparse), bias, relu,
                          expected.data());

  const Buffer turned(kImages * image_floats);
  for (int64_t n = 0; n < image_floats; ++n)
    for (int64_t image = 0; image < kImages; ++image)
      turned.get()[n * kImages + image] = map[static_cast<size_t>(image * image_floats + n)];
  const Buffer found(kImages * s.filters * places);
  cpu::lane_convolution(s, in_lanes ? cpu::lane_strides(s.height, s.width) : rows,
                        in_lanes ? turned.get() : map.data(), cpu::LaneWeights(s, sparse), bias,
                        relu, found.get());
  for (int64_t f = 0; f < s.filters; ++f)
    for (int64_t place = 0; place < places; ++place)
      for (int64_t image = 0; image < kImages; ++image) {
        const float lane = found.get()[(f * places + place) * kImages + image];
        ASSERT_EQ(lane, expected[static_cast<size_t>((image * s.filters + f) * places + place)])
            << "filter " << f << ", place " << place << ", image " << image;
        if (image % 7 != 0 || place % 11 != 0) continue;
        double exact =
            expected_at(s, map, weight, image, f, place / s.out_width(), place % s.out_width());
        if (bias != nullptr) exact += bias[f];
        ASSERT_NEAR(lane, relu ? std::max(exact, 0.0) : exact, 1e-4);
      }
}

ConvolutionShape layer(int64_t channels, int64_t side, int64_t filters, int64_t kernel,
                       int64_t stride) {
  return {.batch = kImages,
          .height = side,
          .width = side,
          .channels = channels,
          .filters = filters,
          .kernel_height = kernel,
          .kernel_width = kernel,
          .stride_y = stride,
          .stride_x = stride};
}

TEST(LaneConvolution, HasTheBitsOfSingleImages) {
  if (!simd::has_image_lanes()) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const bool in_lanes : {false, true}) {
    // The layers of DR-CapsNet, smaller. With 40 channels the sums have several parts.
    expect_bits_of_single_images(layer(1, 28, 6, 9, 1), 0.33, true, true, in_lanes);
    expect_bits_of_single_images(layer(40, 20, 10, 9, 2), 0.03, true, false, in_lanes);
    expect_bits_of_single_images(layer(40, 14, 9, 3, 2), 0.1, false, true, in_lanes);
  }
  expect_bits_of_single_images(layer(5, 9, 7, 3, 1), 0, true, false, false);    // nothing is left
  expect_bits_of_single_images(layer(2, 13, 4, 3, 2), 1, false, false, false);  // nothing is pruned
}

TEST(LaneConvolution, HasTheBitsOfSingleImagesInRandomShapes) {
  if (!simd::has_image_lanes()) GTEST_SKIP() << "this CPU has no AVX-512";
  std::mt19937 random(3);
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int i = 0; i < 8; ++i) {
    ConvolutionShape shape{.batch = kImages,
                           .height = 0,
                           .width = 0,
                           .channels = up_to(40),
                           .filters = up_to(9),
                           .kernel_height = up_to(5),
                           .kernel_width = up_to(5),
                           .stride_y = up_to(2),
                           .stride_x = up_to(2)};
    shape.height = shape.kernel_height + up_to(10) + 10;
    shape.width = shape.kernel_width + up_to(10) + 10;
    expect_bits_of_single_images(shape, 0.3, up_to(2) == 1, up_to(2) == 1, up_to(2) == 1);
  }
}

TEST(LaneConvolution, IsNotForPaddingLongStepsOrSmallMaps) {
  ConvolutionShape shape = layer(2, 9, 2, 3, 1);
  EXPECT_EQ(cpu::LaneWeights::can_be_made(shape), simd::has_image_lanes());
  shape.stride_x = 3;
  EXPECT_FALSE(cpu::LaneWeights::can_be_made(shape));
  shape.stride_x = 1;
  shape.padding_x = 1;
  EXPECT_FALSE(cpu::LaneWeights::can_be_made(shape));
  EXPECT_FALSE(cpu::LaneWeights::can_be_made(layer(3, 7, 2, 5, 1)));
}

}  // namespace
}  // namespace remcaps::kernels
