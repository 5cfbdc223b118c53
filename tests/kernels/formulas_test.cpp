#include "remcaps/kernels/formulas.h"

#include <gtest/gtest.h>

#include <cmath>

namespace remcaps::kernels {
namespace {

TEST(Formulas, AVoteIsShortenedToItsChild) {
  EXPECT_EQ(clamp_factor(4.0F, 1.0F), 0.5F);
  EXPECT_EQ(clamp_factor(1.0F, 4.0F), 1.0F);
  EXPECT_EQ(clamp_factor(0.0F, 0.0F), 1.0F);
}

TEST(Formulas, HalfTheMeanDistanceTakesNineTenths) {
  for (const int parents : {2, 10, 32}) {
    const float t = distance_scale(0.8F, std::log(9.0F * float(parents - 1)));
    const float near = std::exp(t * 0.4F), far = std::exp(t * 0.8F);
    EXPECT_NEAR(near / (near + float(parents - 1) * far), 0.9F, 1e-5F);
  }
  EXPECT_EQ(distance_scale(0.8F, 0.0F), 0.0F);
}

TEST(Formulas, TheScalesSlopeIsThatOfItsSecant) {
  const float log_odds = std::log(9.0F * 31), step = 1e-2F;
  const float secant =
      (distance_scale(0.8F + step, log_odds) - distance_scale(0.8F - step, log_odds)) / (2 * step);
  const float scale = distance_scale(0.8F, log_odds);
  EXPECT_NEAR(distance_scale_slope(scale, log_odds), secant, 1e-3F * secant);
  EXPECT_EQ(distance_scale_slope(0.0F, 0.0F), 0.0F);
}

TEST(Formulas, AVoteThatIsItsPosePullsNothing) {
  EXPECT_EQ(distance_pull(-2.0F, 3.0F, 1.0F, 0.5F), -10.0F);
  EXPECT_EQ(distance_pull(-2.0F, 3.0F, 1.0F, 0.0F), 0.0F);
}

TEST(Formulas, BothSquashFormulasAgree) {
  for (const float n2 : {0.0F, 1e-4F, 0.3F, 2.0F, 50.0F}) {
    const SquashSlopes both = squash_slopes(n2, 1e-6F);
    const float factor = squash_factor(n2, 1e-6F), slope = squash_twice_slope(n2, 1e-6F);
    EXPECT_NEAR(both.factor, factor, 1e-6F * factor);
    EXPECT_NEAR(both.twice_slope, slope, 1e-4F * std::fabs(slope));
  }
}

TEST(Formulas, ANanActivationGivesANanMarginLoss) {
  float derivative = 0;
  EXPECT_TRUE(std::isnan(margin_term(NAN, true, {}, &derivative)));
  EXPECT_TRUE(std::isnan(derivative));
  EXPECT_EQ(margin_term(0.95F, true, {}, &derivative), 0.0F);
  EXPECT_EQ(derivative, 0.0F);
}

}  // namespace
}  // namespace remcaps::kernels
