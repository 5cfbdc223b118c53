#include "remcaps/capsule/quantizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "tests/golden/golden_case.h"

namespace remcaps {
namespace {

using torch::Tensor;

void expect_golden(const std::string& name, const Quantizer& quantizer) {
  const SafetensorsFile golden = testing::GoldenCase::rules();
  const Tensor couplings = golden.load("quantizer/c");
  const Tensor index = golden.load("quantizer/" + name + "/index");
  EXPECT_TRUE(torch::equal(quantizer.indices(couplings), index)) << name;
  EXPECT_TRUE(torch::allclose(quantizer.quantize(couplings),
                              golden.load("quantizer/" + name + "/value"), 0, 1e-7))
      << name;
}

TEST(QuantizerGolden, IndicesAndValuesMatchThePublishedOnes) {
  expect_golden("K11", Quantizer::uniform(11));
  expect_golden("K6", Quantizer::uniform(6));
  expect_golden("K21", Quantizer::uniform(21));
  expect_golden("edges129", Quantizer::bins(128));
}

TEST(Quantizer, UniformCouplingsOfTenClassesFallAsPublished) {
  const Tensor tenth = torch::tensor({0.1f, std::nextafter(0.1f, 0.0f)});
  EXPECT_EQ(Quantizer::uniform(11).indices(tenth)[0].item<int64_t>(), 1);
  // K = 6 has an edge at 0.10000000000000003, just above 0.1 but below 0.1f.
  const Tensor six = Quantizer::uniform(6).indices(tenth);
  EXPECT_EQ(six[0].item<int64_t>(), 1);
  EXPECT_EQ(six[1].item<int64_t>(), 0);
}

TEST(Quantizer, TiesGoDownInTheForwardPassAndUpInTheDictionary) {
  const Quantizer quantizer = Quantizer::bins(4);  // edges 0, 0.25, 0.5, 0.75, 1, exact in float
  const Tensor edge = torch::tensor({0.25f, 0.5f});
  EXPECT_TRUE(torch::equal(quantizer.indices(edge), torch::tensor({0, 1}, torch::kLong)));
  EXPECT_TRUE(
      torch::equal(quantizer.dictionary_indices(edge), torch::tensor({1, 2}, torch::kLong)));
}

TEST(Quantizer, CouplingsOutsideTheEdgesGoToTheFirstAndLastLevel) {
  const Quantizer quantizer = Quantizer::uniform(11);
  const Tensor outside = torch::tensor({-3.0f, -0.06f, 1.06f, 7.0f});
  EXPECT_TRUE(
      torch::equal(quantizer.indices(outside), torch::tensor({0, 0, 10, 10}, torch::kLong)));
  EXPECT_TRUE(torch::equal(quantizer.dictionary_indices(outside),
                           torch::tensor({0, 0, 10, 10}, torch::kLong)));
}

TEST(Quantizer, LevelsAreTheirOwnLevelInBothRules) {
  for (int64_t levels = 2; levels <= 256; ++levels) {
    for (const Quantizer& quantizer : {Quantizer::uniform(levels), Quantizer::bins(levels)}) {
      const Tensor centres = torch::tensor(quantizer.centres());
      const Tensor expected = torch::arange(levels, torch::kLong);
      EXPECT_TRUE(torch::equal(quantizer.indices(centres), expected)) << levels;
      EXPECT_TRUE(torch::equal(quantizer.dictionary_indices(centres), expected)) << levels;
    }
  }
}

TEST(Quantizer, KeepsShapeAndTakesTransposedCouplings) {
  const Tensor couplings = torch::rand({3, 4, 5}).transpose(1, 2);
  const Tensor quantized = Quantizer::uniform(11).quantize(couplings);
  EXPECT_EQ(quantized.sizes(), couplings.sizes());
  EXPECT_TRUE(torch::allclose(quantized, (couplings * 10).round() / 10, 0, 1e-6));
}

TEST(Quantizer, RefusesAKThatIsNoQuantizer) {
  EXPECT_THROW(Quantizer::uniform(1), Error);
  EXPECT_THROW(Quantizer::bins(0), Error);
  EXPECT_THROW(Quantizer::uniform(257), Error);
}

}  // namespace
}  // namespace remcaps
