#include "remcaps/ops/quantize.h"

#include <gtest/gtest.h>

#include "remcaps/parse_tree/keys.h"
#include "tests/golden/golden_case.h"

namespace remcaps {
namespace {

using torch::Tensor;

void expect_golden(const std::string& name, const Quantizer& quantizer) {
  const TensorFile golden = testing::GoldenCase::rules();
  const Tensor couplings = golden.load("quantizer/c");
  const Tensor index = golden.load("quantizer/" + name + "/index");
  EXPECT_TRUE(torch::equal(level_indices(couplings, quantizer), index)) << name;
  EXPECT_TRUE(torch::allclose(quantize(couplings, quantizer),
                              golden.load("quantizer/" + name + "/value"), 0, 1e-7))
      << name;
}

TEST(QuantizeGolden, IndicesAndValuesMatchThePublishedOnes) {
  expect_golden("K11", Quantizer::uniform(11));
  expect_golden("K6", Quantizer::uniform(6));
  expect_golden("K21", Quantizer::uniform(21));
  expect_golden("edges129", Quantizer::bins(128));
}

TEST(Quantize, KeepsShapeAndTakesTransposedCouplings) {
  const Tensor couplings = torch::rand({3, 4, 5}).transpose(1, 2);
  const Tensor quantized = quantize(couplings, Quantizer::uniform(11));
  EXPECT_EQ(quantized.sizes(), couplings.sizes());
  EXPECT_TRUE(torch::allclose(quantized, (couplings * 10).round() / 10, 0, 1e-6));
}

TEST(Quantize, LevelIndicesAreThoseOfTheQuantizer) {
  for (const int64_t levels : {2, 6, 11, 128}) {
    const Quantizer quantizer = Quantizer::uniform(levels);
    const Tensor couplings = torch::rand({500}) * 1.2 - 0.1;
    const Tensor indices = level_indices(couplings, quantizer);
    for (int64_t at = 0; at < couplings.size(0); ++at)
      EXPECT_EQ(indices[at].item<int64_t>(), quantizer.level(couplings[at].item<float>()));
  }
}

TEST(EncodeKeys, HoldTheLevelsOfEachRow) {
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {  // by rows, and as tensor operations
    for (const int64_t levels : {2, 11, 16, 17, 128, 256}) {
      for (const int64_t children : {1, 6, 7}) {
        const Quantizer quantizer = Quantizer::uniform(levels);
        const Tensor couplings = torch::rand({children, 40}, type).t();
        const Tensor keys = encode_keys(couplings, quantizer);
        ASSERT_EQ(keys.sizes(), (std::vector<int64_t>{40, key_length(children, levels)}));
        const Tensor indices = level_indices(couplings, quantizer);
        for (int64_t row = 0; row < keys.size(0); ++row) {
          const auto* bytes = reinterpret_cast<const char*>(keys[row].data_ptr<uint8_t>());
          const auto decoded =
              decode_key({bytes, static_cast<size_t>(keys.size(1))}, children, levels);
          for (int64_t k = 0; k < children; ++k)
            EXPECT_EQ(decoded[static_cast<size_t>(k)], indices[row][k].item<int64_t>());
        }
      }
    }
  }
}

}  // namespace
}  // namespace remcaps
