// The fused routing kernels, compared with the plain tensor code in float64.
#include "remcaps/ops/routing.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "tests/ops/kernel_testing.h"
#include "tests/ops/routing_testing.h"

namespace remcaps {
namespace {

const RoutingCase kCases[] = {
    {"DrCapsNet", 20, 96, 10, 8, 16},
    {"DeepCaps", 5, 80, 10, 8, 32, 3, BiasUse::kLast},
    {"MultilayerCapsNet", 37, 16, 16, 8, 8},
    {"TinyImageNet", 3, 36, 200, 8, 16},
    {"SixteenWide", 9, 33, 7, 16, 16},
    {"OneImage", 1, 70, 10, 8, 16},
    {"OneChild", 6, 1, 4, 8, 16},
    {"OneParent", 6, 50, 1, 8, 16},
    {"OneOfEach", 1, 1, 1, 1, 1},
    {"OddDimensions", 19, 45, 7, 5, 13},
    {"OddChildDimension", 33, 21, 5, 11, 16},
    {"NoBias", 17, 40, 10, 8, 16, 3, BiasUse::kNone},
    {"OneIteration", 18, 40, 10, 8, 16, 1},
    {"TwoIterations", 18, 40, 10, 8, 16, 2},
    {"FiveIterations", 18, 40, 6, 4, 12, 5},
};

RoutingResult plain(const RoutingCase& c, const RoutingInputs& inputs, RoutingGradient gradient,
                    const RoutingRequest& request = {}) {
  return dynamic_routing(inputs.children, inputs.weight, inputs.bias,
                         {.iterations = c.iterations,
                          .gradient = gradient,
                          .bias = c.bias,
                          .kernels = KernelPath::kReference},
                         request);
}

FusedRoutingOptions fused_options(const RoutingCase& c) {
  FusedRoutingOptions options;
  options.iterations = c.iterations;
  options.bias_every_iteration = c.bias == BiasUse::kEvery;
  options.return_couplings = true;
  return options;
}

class FusedRouting : public ::testing::TestWithParam<std::tuple<RoutingCase, std::string>> {
 protected:
  RoutingCase problem() const { return std::get<0>(GetParam()); }
  std::string device() const { return std::get<1>(GetParam()); }

  // Poses, couplings and all gradients of a random linear loss agree.
  void expect_agreement(bool full, bool pruned, const std::optional<Quantizer>& quantizer = {}) {
    const RoutingCase c = problem();
    const RoutingInputs random = RoutingInputs::random(c, pruned);
    const RoutingInputs reference = random.leaves(torch::kFloat64, "cpu");
    const RoutingInputs fused = random.leaves(torch::kFloat32, device());
    FusedRoutingOptions options = fused_options(c);
    options.full_gradient = full;
    RoutingRequest request;
    if (quantizer) {
      request.quantizer = quantizer;
      options.level_edges = quantizer->edges();
      options.level_centres = quantizer->centres();
    }
    const RoutingResult expected =
        plain(c, reference, full ? RoutingGradient::kFull : RoutingGradient::kLast, request);
    const auto [poses, couplings] =
        fused_dynamic_routing(fused.children, fused.weight, fused.bias, options);
    EXPECT_TRUE(close_to(poses.detach(), expected.poses.detach(), 1e-5));
    EXPECT_TRUE(close_to(couplings, expected.coupling.detach(), 1e-5));
    EXPECT_FALSE(couplings.requires_grad());

    const Tensor direction = torch::randn_like(expected.poses);
    (expected.poses * direction).sum().backward();
    (poses * direction.to(poses.options())).sum().backward();
    EXPECT_TRUE(close_to(fused.children.grad(), reference.children.grad(), 2e-5));
    EXPECT_TRUE(close_to(fused.weight.grad(), reference.weight.grad(), 2e-5));
    if (fused.bias.defined()) {
      EXPECT_TRUE(close_to(fused.bias.grad(), reference.bias.grad(), 2e-5));
    }
  }
};

TEST_P(FusedRouting, AgreesWithThePlainCodeAndItsPublishedGradient) {
  expect_agreement(/*full=*/false, /*pruned=*/false);
}

TEST_P(FusedRouting, AgreesWithTheFullGradient) {
  expect_agreement(/*full=*/true, /*pruned=*/false);
}

TEST_P(FusedRouting, AgreesWhereBlocksArePruned) {
  expect_agreement(/*full=*/false, /*pruned=*/true);
  expect_agreement(/*full=*/true, /*pruned=*/true);
}

TEST_P(FusedRouting, AgreesWithQuantizedCouplings) {
  expect_agreement(/*full=*/false, /*pruned=*/false, Quantizer::uniform(11));
  expect_agreement(/*full=*/true, /*pruned=*/false, Quantizer::bins(128));
}

TEST_P(FusedRouting, ItsForwardDoesNotDependOnWhetherGradientsAreWanted) {
  const RoutingInputs inputs = RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
  const FusedRoutingOptions options = fused_options(problem());
  const auto with = fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, options);
  torch::NoGradGuard no_grad;
  const auto without = fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, options);
  EXPECT_TRUE(torch::equal(std::get<0>(with), std::get<0>(without)));
  EXPECT_TRUE(torch::equal(std::get<1>(with), std::get<1>(without)));
}

TEST_P(FusedRouting, RepeatsBitForBit) {
  const auto gradients = [&] {
    const RoutingInputs inputs = RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
    const Tensor poses = std::get<0>(fused_dynamic_routing(inputs.children, inputs.weight,
                                                           inputs.bias, fused_options(problem())));
    poses.pow(2).sum().backward();
    return std::vector<Tensor>{poses.detach(), inputs.children.grad(), inputs.weight.grad()};
  };
  const std::vector<Tensor> first = gradients(), second = gradients();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedRouting,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(kernel_devices())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param);
                         });

TEST(FusedRoutingCpu, DoesNotDependOnTheNumberOfThreads) {
  const RoutingInputs inputs = RoutingInputs::random(kCases[0]);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = std::get<0>(
      fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, fused_options(kCases[0])));
  at::set_num_threads(4);
  const Tensor four = std::get<0>(
      fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, fused_options(kCases[0])));
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(one, four));
}

TEST(FusedRoutingCpu, TakesTensorsThatAreNotContiguous) {
  const RoutingInputs inputs = RoutingInputs::random(kCases[0]);
  const Tensor turned = inputs.children.transpose(1, 2).contiguous().transpose(1, 2);
  const Tensor expected = std::get<0>(
      fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, fused_options(kCases[0])));
  const Tensor found = std::get<0>(
      fused_dynamic_routing(turned, inputs.weight, inputs.bias, fused_options(kCases[0])));
  EXPECT_TRUE(torch::equal(found, expected));
}

TEST(FusedRoutingCpu, StaysFiniteForHugeAgreements) {
  RoutingInputs inputs = RoutingInputs::random(kCases[0]);
  inputs.children *= 1e4;
  const Tensor poses = std::get<0>(
      fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, fused_options(kCases[0])));
  EXPECT_TRUE(torch::isfinite(poses).all().item<bool>());
}

TEST(FusedRoutingCpu, OnlyTheGradientsThatAreWantedAreMade) {
  RoutingInputs inputs = RoutingInputs::random(kCases[0]);
  inputs.weight.requires_grad_();
  std::get<0>(
      fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, fused_options(kCases[0])))
      .sum()
      .backward();
  EXPECT_TRUE(inputs.weight.grad().defined());
  EXPECT_FALSE(inputs.children.grad().defined());
  EXPECT_FALSE(inputs.bias.grad().defined());
}

TEST(FusedRoutingCpu, NamesTheShapesItCannotTake) {
  const RoutingInputs inputs = RoutingInputs::random(kCases[0]);
  try {
    fused_dynamic_routing(inputs.children, inputs.weight.transpose(2, 3), inputs.bias, {});
    FAIL() << "accepted a transposed weight";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[96, 10, 8, 16]"), std::string::npos) << error.what();
  }
  EXPECT_THROW(
      fused_dynamic_routing(inputs.children.to(torch::kFloat64), inputs.weight, inputs.bias, {}),
      Error);
}

}  // namespace
}  // namespace remcaps
