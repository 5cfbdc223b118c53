#include "remcaps/ops/squash.h"

#include "tests/capsule/numeric.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

TEST(Squash, KeepsTheDirectionAndMapsLengthTwoToFourFifths) {
  const Tensor s = torch::tensor({1.2, 1.6}, torch::kFloat64);
  const Tensor v = squash(s, 0, 1e-12);
  EXPECT_NEAR(v.norm().item<double>(), 0.8, 1e-9);
  expect_close(v / v.norm(), s / s.norm(), 1e-12);
}

TEST(Squash, ExponentialFormMapsLengthToOneMinusItsExponential) {
  const Tensor s = torch::tensor({0.6, 0.8}, torch::kFloat64);
  const Tensor v = squash_exponential(s, 0, 1e-14);
  EXPECT_NEAR(v.norm().item<double>(), 1 - std::exp(-1.0), 1e-9);
}

TEST(Squash, ExponentialFormSurvivesVeryLongVectors) {
  const Tensor s = torch::full({1, 4}, 1000.0f);
  EXPECT_NEAR(squash_exponential(s).norm().item<double>(), 1.0, 1e-6);
}

TEST(Squash, BothFormsHaveFiniteGradientsAtZero) {
  for (const Squash& form :
       {Squash{}, Squash{Squash::Form::kNorm, 1e-8}, Squash{Squash::Form::kExponential, 1e-7}}) {
    const Tensor s = torch::zeros({2, 3}, torch::requires_grad());
    const Tensor v = form(s, {1});
    EXPECT_EQ(v.abs().max().item<float>(), 0.0f);
    (v * torch::arange(6).view({2, 3})).sum().backward();
    EXPECT_TRUE(torch::isfinite(s.grad()).all().item<bool>());
  }
}

TEST(Squash, GradientsEqualFiniteDifferences) {
  torch::manual_seed(1);
  for (const Squash& form : {Squash{}, Squash{Squash::Form::kExponential, 1e-7}}) {
    const Tensor s = random_doubles({3, 4, 2}).requires_grad_();
    const Tensor probe = random_doubles({3, 4, 2});
    const auto loss = [&] { return (form(s, {1, 2}) * probe).sum(); };
    loss().backward();
    expect_close(s.grad(), finite_differences(loss, s), 1e-8);
  }
}

TEST(SafeNorm, WithoutEpsilonIsTheNormAndWithOneHasAGradientAtZero) {
  const Tensor v = torch::tensor({{3.0f, 4.0f}, {0.0f, 0.0f}}).requires_grad_();
  expect_close(safe_norm(v), torch::tensor({5.0f, 0.0f}), 0);
  safe_norm(v, -1, 1e-7).sum().backward();
  EXPECT_TRUE(torch::isfinite(v.grad()).all().item<bool>());
}

}  // namespace
}  // namespace remcaps
