#include "remcaps/training/adam.h"

#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/pruning/lobster_pruner.h"

namespace remcaps {
namespace {

using torch::Tensor;

TEST(Adam, FollowsItsFormula) {
  const std::vector<double> start = {1.0, -2.0, 0.5};
  Tensor parameter = torch::tensor(start, torch::kFloat32).set_requires_grad(true);
  Adam adam({{"p", parameter}}, {});
  std::vector<double> p = start, m(3, 0.0), v(3, 0.0);
  for (int t = 1; t <= 5; ++t) {
    std::vector<double> gradient = {0.1 * t, -3.0, 1e-4 / t};
    parameter.mutable_grad() = torch::tensor(gradient, torch::kFloat32);
    adam.step(0.01);
    for (size_t i = 0; i < 3; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * gradient[i];
      v[i] = 0.999 * v[i] + 0.001 * gradient[i] * gradient[i];
      const double m_hat = m[i] / (1 - std::pow(0.9, t));
      const double v_hat = v[i] / (1 - std::pow(0.999, t));
      p[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
      EXPECT_NEAR(parameter[static_cast<int64_t>(i)].item<double>(), p[i], 1e-6);
    }
  }
  EXPECT_EQ(adam.steps(), 5);
}

TEST(Adam, ParameterWithoutGradientDoesNotMoveAndAFrozenOneHasNoState) {
  Tensor still = torch::ones({2}).set_requires_grad(true);
  Tensor moving = torch::ones({2}).set_requires_grad(true);
  Tensor frozen = torch::ones({2});
  Adam adam({{"still", still}, {"moving", moving}, {"frozen", frozen}}, {});
  moving.mutable_grad() = torch::ones({2});
  adam.step(0.1);
  EXPECT_TRUE(torch::equal(still.detach(), torch::ones({2})));
  EXPECT_LT(moving[0].item<float>(), 1.0F);
  EXPECT_EQ(adam.state().count("m.frozen"), 0);
}

TEST(Adam, RestoredStateContinuesBitForBit) {
  const auto run = [](Adam& adam, Tensor& parameter, int from, int to) {
    for (int t = from; t < to; ++t) {
      parameter.mutable_grad() = torch::full({4}, 0.3 * t - 1);
      adam.step(0.02);
    }
  };
  Tensor whole = torch::linspace(-1, 1, 4).set_requires_grad(true);
  Adam first({{"p", whole}}, {});
  run(first, whole, 0, 4);
  Tensor copy = whole.detach().clone().set_requires_grad(true);
  Adam second({{"p", copy}}, {});
  second.load_state(first.state(), first.steps());
  run(first, whole, 4, 9);
  run(second, copy, 4, 9);
  EXPECT_TRUE(torch::equal(whole.detach(), copy.detach()));
}

TEST(Adam, OnePassAgreesWithShrinkStepAndMaskOneAfterTheOther) {
  torch::manual_seed(1);
  const Tensor start = torch::randn({7, 33}), free = torch::randn({5});
  const Tensor dead = torch::rand({7, 33}) < 0.4;
  Tensor fused = start.clone().requires_grad_(), fused_free = free.clone().requires_grad_();
  Tensor plain = start.clone().requires_grad_(), plain_free = free.clone().requires_grad_();
  Adam one_pass({{"w", fused}, {"free", fused_free}}, {.kernels = KernelPath::kFused});
  Adam separate({{"w", plain}, {"free", plain_free}}, {.kernels = KernelPath::kReference});
  ASSERT_TRUE(one_pass.one_pass());
  ASSERT_FALSE(separate.one_pass());
  EXPECT_THROW(separate.step(0.01, UpdateRule{}), Error);
  for (int t = 0; t < 6; ++t) {
    const Tensor gradient = torch::randn({7, 33}), free_gradient = torch::randn({5});
    fused.mutable_grad() = gradient.clone();
    plain.mutable_grad() = gradient.clone();
    fused_free.mutable_grad() = free_gradient.clone();
    plain_free.mutable_grad() = free_gradient.clone();
    one_pass.step(0.01, {.lambda = 0.02, .shrunk = {"w"}, .dead = {{"w", dead}}});
    lobster_shrink(plain, plain.grad(), 0.02);
    separate.step(0.01);
    torch::NoGradGuard no_grad;
    plain.masked_fill_(dead, 0);
    EXPECT_TRUE(torch::allclose(fused, plain, 1e-5, 1e-6)) << t;
    EXPECT_TRUE(torch::allclose(fused_free, plain_free, 1e-5, 1e-6)) << t;
  }
}

TEST(Adam, StateThatDoesNotFitIsRejected) {
  Tensor parameter = torch::ones({4}).set_requires_grad(true);
  Adam adam({{"p", parameter}}, {});
  EXPECT_THROW(adam.load_state({}, 1), Error);
  EXPECT_THROW(adam.load_state({{"m.p", torch::ones({3})}, {"v.p", torch::ones({4})}}, 1), Error);
}

}  // namespace
}  // namespace remcaps
