#include "remcaps/tensors/compressed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

using ::testing::ElementsAre;

template <typename T>
TensorView view_of(const std::vector<T>& values, ElementType type) {
  return {type, {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(values))};
}

TEST(CompressedHalves, KeepTheValuesThatAreNotZero) {
  std::vector<uint16_t> halves(20, 0);
  halves[1] = 0x3c00;   // 1
  halves[5] = 0x8000;   // -0
  halves[18] = 0xc000;  // -2
  const auto compressed = compress_halves(halves);
  ASSERT_TRUE(compressed);
  EXPECT_THAT(compressed->bits, ElementsAre(0b10, 0, 0b100));
  EXPECT_THAT(compressed->values, ElementsAre(0x3c00, 0xc000));
  const DecompressedTensors back =
      decompress({{"w.bits", view_of(compressed->bits, ElementType::kUInt8)},
                  {"w.values", view_of(compressed->values, ElementType::kFloat16)}},
                 compressed_metadata({{"w", {4, 5}}}), "file");
  EXPECT_TRUE(back.others.empty());
  const FloatTensor& tensor = back.floats.at("w");
  EXPECT_THAT(tensor.shape, ElementsAre(4, 5));
  for (size_t place = 0; place < 20; ++place)
    EXPECT_EQ(tensor.values[place], place == 1 ? 1 : place == 18 ? -2 : 0) << place;
}

TEST(CompressedHalves, ABitmapMustSaveMoreThanItTakes) {
  std::vector<uint16_t> halves(16, 0x3c00);
  EXPECT_FALSE(compress_halves(halves));
  halves[0] = 0;
  EXPECT_FALSE(compress_halves(halves)) << "saves 2 bytes, takes 2";
  halves[1] = 0;
  EXPECT_TRUE(compress_halves(halves));
}

TEST(CompressedHalves, EveryFiniteHalfIsExactInFloat) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    if ((bits & 0x7c00) != 0x7c00) halves.push_back(static_cast<uint16_t>(bits));
  const DecompressedTensors back =
      decompress({{"w", view_of(halves, ElementType::kFloat16)}}, compressed_metadata({}), "file");
  for (size_t k = 0; k < halves.size(); ++k) {
    const int exponent = halves[k] >> 10 & 0x1f, fraction = halves[k] & 0x3ff;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const float found = back.floats.at("w").values[k];
    EXPECT_EQ(std::abs(found), magnitude);
    EXPECT_EQ(std::signbit(found), (halves[k] & 0x8000) != 0);
  }
}

TEST(Decompress, LeavesWhatWasNeverCompressed) {
  const std::vector<uint16_t> halves = {0x3c00};
  const std::vector<float> floats = {2};
  const TensorViews tensors = {{"half", view_of(halves, ElementType::kFloat16)},
                               {"float", view_of(floats, ElementType::kFloat32)}};
  EXPECT_EQ(decompress(tensors, {}, "file").others.size(), 2U) << "not a compressed file";
  const DecompressedTensors compressed = decompress(tensors, compressed_metadata({}), "file");
  EXPECT_THAT(compressed.floats.at("half").values, ElementsAre(1));
  EXPECT_EQ(compressed.others.at("float").type, ElementType::kFloat32);
}

TEST(Decompress, ValuesOfAnotherTypeAreRefused) {
  const std::vector<uint8_t> bits = {1};
  const std::vector<float> values = {2};
  try {
    decompress({{"w.bits", view_of(bits, ElementType::kUInt8)},
                {"w.values", view_of(values, ElementType::kFloat32)}},
               compressed_metadata({{"w", {8}}}), "file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "file: w.values is F32; expected F16 or I8");
  }
}

}  // namespace
}  // namespace remcaps
