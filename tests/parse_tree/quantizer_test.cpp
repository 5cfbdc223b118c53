#include "remcaps/parse_tree/quantizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

TEST(Quantizer, LevelsOfThePublishedForms) {
  const Quantizer uniform = Quantizer::uniform(11);
  EXPECT_EQ(uniform.levels(), 11);
  EXPECT_DOUBLE_EQ(uniform.edges().front(), -0.05);
  EXPECT_DOUBLE_EQ(uniform.edges().back(), 1.05);
  for (size_t k = 0; k < 11; ++k)
    EXPECT_NEAR(uniform.centres()[k], 0.1 * static_cast<double>(k), 1e-7);
  const Quantizer bins = Quantizer::bins(128);
  EXPECT_EQ(bins.levels(), 128);
  EXPECT_EQ(bins.edges()[1], 1.0 / 128);
  EXPECT_EQ(bins.centres()[3], 3.5F / 128);
}

TEST(Quantizer, UniformCouplingsOfTenClassesFallAsPublished) {
  EXPECT_EQ(Quantizer::uniform(11).level(0.1F), 1);
  // K = 6 has an edge at 0.10000000000000003, just above 0.1 but below 0.1F.
  EXPECT_EQ(Quantizer::uniform(6).level(0.1F), 1);
  EXPECT_EQ(Quantizer::uniform(6).level(std::nextafter(0.1F, 0.0F)), 0);
}

TEST(Quantizer, FloatsAreComparedWithTheExactEdges) {
  for (int64_t levels = 2; levels <= 256; ++levels) {
    for (const Quantizer& quantizer : {Quantizer::uniform(levels), Quantizer::bins(levels)}) {
      for (int64_t k = 1; k < levels; ++k) {
        const double edge = quantizer.edges()[static_cast<size_t>(k)];
        const float near = static_cast<float>(edge);
        for (const float c : {std::nextafter(near, 0.0F), near, std::nextafter(near, 1.0F)})
          EXPECT_EQ(quantizer.level(c), static_cast<double>(c) <= edge ? k - 1 : k)
              << levels << " levels, edge " << k;
      }
    }
  }
}

TEST(Quantizer, TiesGoDown) {
  const Quantizer quantizer = Quantizer::bins(4);  // edges 0, 0.25, 0.5, 0.75, 1, exact in float
  EXPECT_EQ(quantizer.level(0.25F), 0);
  EXPECT_EQ(quantizer.level(0.5F), 1);
}

TEST(Quantizer, CouplingsOutsideTheEdgesGoToTheFirstAndLastLevel) {
  const Quantizer quantizer = Quantizer::uniform(11);
  EXPECT_EQ(quantizer.level(-3.0F), 0);
  EXPECT_EQ(quantizer.level(-0.06F), 0);
  EXPECT_EQ(quantizer.level(1.06F), 10);
  EXPECT_EQ(quantizer.level(7.0F), 10);
}

TEST(Quantizer, ACentreIsOfItsOwnLevel) {
  for (int64_t levels = 2; levels <= 256; ++levels)
    for (const Quantizer& quantizer : {Quantizer::uniform(levels), Quantizer::bins(levels)})
      for (int64_t k = 0; k < levels; ++k)
        EXPECT_EQ(quantizer.level(quantizer.centres()[static_cast<size_t>(k)]), k) << levels;
}

TEST(Quantizer, RefusesAKThatIsNoQuantizer) {
  EXPECT_THROW(Quantizer::uniform(1), Error);
  EXPECT_THROW(Quantizer::bins(0), Error);
  EXPECT_THROW(Quantizer::uniform(257), Error);
}

}  // namespace
}  // namespace remcaps
