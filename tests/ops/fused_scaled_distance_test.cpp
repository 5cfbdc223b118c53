// Fused scaled-distance routing in float32, if there is a kernel for the device and the pose sizes,
// compared with the plain tensor code in float64.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "remcaps/ops/routing.h"
#include "tests/ops/kernel_testing.h"
#include "tests/ops/routing_testing.h"

namespace remcaps {
namespace {

using Mean = ScaledDistanceRouting::Mean;

constexpr RoutingGradient kGradients[] = {RoutingGradient::kLast, RoutingGradient::kFull};

const RoutingCase kDistanceCases[] = {
    {"GammaCapsNetFirst", 20, 96, 32, 8, 8},
    {"GammaCapsNetSecond", 128, 32, 10, 8, 16},
    {"WideParents", 5, 80, 10, 8, 32, 3, BiasUse::kLast},
    {"SixteenWide", 9, 33, 7, 16, 16},
    {"TinyImageNet", 3, 5, 200, 8, 16},
    {"UnevenBatch", 67, 35, 11, 8, 8},
    {"LargeBatch", 131, 20, 6, 8, 16},
    {"OneImage", 1, 70, 10, 8, 16},
    {"OneChild", 6, 1, 4, 8, 16},
    {"OneParent", 6, 50, 1, 8, 16},
    {"OneOfEach", 1, 1, 1, 8, 8},
    {"OneNumberEach", 1, 1, 1, 1, 1},
    {"OddDimensions", 19, 45, 7, 5, 13},
    {"OddChildDimension", 33, 21, 5, 11, 16},
    {"OddParentDimension", 40, 21, 5, 16, 7},
    {"NoBias", 17, 40, 10, 8, 16, 3, BiasUse::kNone},
    {"OneIteration", 18, 40, 10, 8, 16, 1},
    {"TwoIterations", 18, 40, 10, 8, 16, 2},
    {"TwoIterationsBiasLast", 18, 40, 10, 8, 16, 2, BiasUse::kLast},
    {"FourIterations", 35, 50, 9, 16, 16, 4},
    {"FiveIterations", 18, 40, 6, 8, 8, 5},
};

RoutingResult route_by_distance(const RoutingCase& c, const RoutingInputs& inputs, Mean mean,
                                KernelPath kernels, const RoutingRequest& request = {},
                                RoutingGradient gradient = RoutingGradient::kLast) {
  ScaledDistanceRouting options;
  options.gradient = gradient;
  options.iterations = c.iterations;
  options.bias = c.bias;
  options.mean = mean;
  options.kernels = kernels;
  return scaled_distance_routing(inputs.children, inputs.weight, inputs.bias, options, request);
}

class FusedScaledDistance : public ::testing::TestWithParam<std::tuple<RoutingCase, std::string>> {
 protected:
  RoutingCase problem() const { return std::get<0>(GetParam()); }
  std::string device() const { return std::get<1>(GetParam()); }

  // Poses, couplings and either gradient of a random linear loss agree.
  void expect_agreement(const RoutingInputs& random, Mean mean) {
    for (const RoutingGradient gradient : kGradients) expect_agreement(random, mean, gradient);
  }

  void expect_agreement(const RoutingInputs& random, Mean mean, RoutingGradient gradient) {
    SCOPED_TRACE(gradient == RoutingGradient::kFull ? "full gradient" : "published gradient");
    const RoutingCase c = problem();
    const RoutingInputs reference = random.leaves(torch::kFloat64, "cpu");
    const RoutingInputs fused = random.leaves(torch::kFloat32, device());
    const RoutingResult expected =
        route_by_distance(c, reference, mean, KernelPath::kReference, {}, gradient);
    const RoutingResult found = route_by_distance(c, fused, mean, KernelPath::kFused, {}, gradient);
    EXPECT_TRUE(close_to(found.poses.detach(), expected.poses.detach(), 1e-5));
    EXPECT_TRUE(close_to(found.coupling.detach(), expected.coupling.detach(), 1e-5));

    const Tensor direction = torch::randn_like(expected.poses);
    (expected.poses * direction).sum().backward();
    (found.poses * direction.to(found.poses.options())).sum().backward();
    EXPECT_TRUE(close_to(fused.children.grad(), reference.children.grad(), 2e-5));
    EXPECT_TRUE(close_to(fused.weight.grad(), reference.weight.grad(), 2e-5));
    if (fused.bias.defined()) {
      EXPECT_TRUE(close_to(fused.bias.grad(), reference.bias.grad(), 2e-5));
    }
  }
};

TEST_P(FusedScaledDistance, RunsFusedOnTheCpuAndWithTheNetworksPosesOnAGpu) {
  const RoutingInputs inputs = RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
  EXPECT_EQ(has_fused_scaled_distance_routing(inputs.children, inputs.weight),
            device() == "cpu" || (problem().child_dim % 8 == 0 && problem().parent_dim % 8 == 0));
}

TEST_P(FusedScaledDistance, AgreesWithThePlainCodeAndItsPublishedGradient) {
  expect_agreement(RoutingInputs::random(problem()), Mean::kBatch, RoutingGradient::kLast);
}

TEST_P(FusedScaledDistance, AgreesWithThePlainCodeAndItsFullGradient) {
  expect_agreement(RoutingInputs::random(problem()), Mean::kBatch, RoutingGradient::kFull);
}

TEST_P(FusedScaledDistance, AgreesWithTheMeanOfEachImage) {
  expect_agreement(RoutingInputs::random(problem()), Mean::kSample);
}

TEST_P(FusedScaledDistance, AgreesWhereBlocksArePruned) {
  expect_agreement(RoutingInputs::random(problem(), /*pruned=*/true), Mean::kBatch);
}

TEST_P(FusedScaledDistance, AgreesWhereAllBlocksArePruned) {
  RoutingInputs inputs = RoutingInputs::random(problem());
  inputs.weight.zero_();
  expect_agreement(inputs, Mean::kBatch);
  if (inputs.bias.defined()) inputs.bias.zero_();  // all distances are 0
  expect_agreement(inputs, Mean::kSample);
}

TEST_P(FusedScaledDistance, AgreesWhereThereAreNoChildren) {
  RoutingInputs inputs = RoutingInputs::random(problem());
  inputs.children.zero_();
  expect_agreement(inputs, Mean::kBatch);
}

TEST_P(FusedScaledDistance, AgreesWhereAChildHasNoLength) {
  RoutingInputs inputs = RoutingInputs::random(problem());
  inputs.children.select(1, 0).zero_();
  expect_agreement(inputs, Mean::kSample);
}

TEST_P(FusedScaledDistance, QuantizesTheLastCouplings) {
  RoutingRequest request;
  request.quantizer = Quantizer::uniform(11);
  for (const RoutingGradient gradient : kGradients) {
    const RoutingInputs random = RoutingInputs::random(problem());
    const RoutingInputs reference = random.leaves(torch::kFloat64, "cpu");
    const RoutingInputs fused = random.leaves(torch::kFloat32, device());
    const RoutingResult expected = route_by_distance(problem(), reference, Mean::kBatch,
                                                     KernelPath::kReference, request, gradient);
    const RoutingResult found =
        route_by_distance(problem(), fused, Mean::kBatch, KernelPath::kFused, request, gradient);
    // A coupling that lies on an edge of the quantizer may fall to either side.
    const Tensor levels = found.coupling.detach().to(torch::kCPU, torch::kFloat64);
    const Tensor misses = (levels - expected.coupling.detach()).abs() > 1e-6;
    EXPECT_LT(misses.to(torch::kFloat64).mean().item<double>(), 1e-3);
    EXPECT_TRUE(close_to(found.poses.detach(), expected.poses.detach(), 2e-2));
    found.poses.sum().backward();
    expected.poses.sum().backward();
    EXPECT_TRUE(close_to(fused.weight.grad(), reference.weight.grad(), 5e-2));
  }
}

TEST_P(FusedScaledDistance, ItsForwardDoesNotDependOnWhatIsAskedFor) {
  const RoutingInputs inputs = RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
  const RoutingResult with = route_by_distance(problem(), inputs, Mean::kBatch, KernelPath::kFused);
  torch::NoGradGuard no_grad;
  RoutingRequest request;
  request.coupling = false;
  const RoutingResult without =
      route_by_distance(problem(), inputs, Mean::kBatch, KernelPath::kFused, request);
  EXPECT_TRUE(torch::equal(with.poses, without.poses));
  const RoutingResult full = route_by_distance(problem(), inputs, Mean::kBatch, KernelPath::kFused,
                                               request, RoutingGradient::kFull);
  EXPECT_TRUE(torch::equal(with.poses, full.poses));
}

TEST_P(FusedScaledDistance, RepeatsBitForBit) {
  for (const RoutingGradient gradient : kGradients) {
    const auto gradients = [&] {
      const RoutingInputs inputs =
          RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
      const Tensor poses =
          route_by_distance(problem(), inputs, Mean::kBatch, KernelPath::kFused, {}, gradient)
              .poses;
      poses.pow(2).sum().backward();
      return std::vector<Tensor>{poses.detach(), inputs.children.grad(), inputs.weight.grad()};
    };
    const std::vector<Tensor> first = gradients(), second = gradients();
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i]));
  }
}

TEST_P(FusedScaledDistance, OnlyTheGradientsThatAreWantedAreMade) {
  for (const RoutingGradient gradient : kGradients) {
    // 0: children, 1: weight, 2: bias; 3: all three need gradients.
    const auto gradients_without = [&](int left_out) {
      const RoutingInputs inputs =
          RoutingInputs::random(problem()).leaves(torch::kFloat32, device());
      std::vector<Tensor> leaves = {inputs.children, inputs.weight};
      if (inputs.bias.defined()) leaves.push_back(inputs.bias);
      for (size_t i = 0; i < leaves.size(); ++i) leaves[i].requires_grad_(int(i) != left_out);
      route_by_distance(problem(), inputs, Mean::kBatch, KernelPath::kFused, {}, gradient)
          .poses.pow(2)
          .sum()
          .backward();
      std::vector<Tensor> gradients;
      for (const Tensor& leaf : leaves) gradients.push_back(leaf.grad());
      return gradients;
    };
    const std::vector<Tensor> all = gradients_without(3);
    for (size_t left_out = 0; left_out < all.size(); ++left_out) {
      const std::vector<Tensor> some = gradients_without(int(left_out));
      for (size_t i = 0; i < all.size(); ++i) {
        if (i == left_out)
          EXPECT_FALSE(some[i].defined());
        else
          EXPECT_TRUE(torch::equal(some[i], all[i]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FusedScaledDistance,
                         ::testing::Combine(::testing::ValuesIn(kDistanceCases),
                                            ::testing::ValuesIn(kernel_devices())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param);
                         });

class FusedScaledDistanceCpu : public ::testing::Test {
 protected:
  static Tensor poses_of(const RoutingInputs& inputs, Mean mean = Mean::kBatch) {
    return route_by_distance(kDistanceCases[0], inputs, mean, KernelPath::kFused).poses;
  }
  RoutingInputs inputs_ = RoutingInputs::random(kDistanceCases[0]);
};

TEST_F(FusedScaledDistanceCpu, DoesNotDependOnTheNumberOfThreads) {
  const auto weight_gradient = [&] {
    const RoutingInputs leaves = inputs_.leaves(torch::kFloat32, "cpu");
    route_by_distance(kDistanceCases[0], leaves, Mean::kBatch, KernelPath::kFused, {},
                      RoutingGradient::kFull)
        .poses.pow(2)
        .sum()
        .backward();
    return leaves.weight.grad();
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = poses_of(inputs_), gradient_of_one = weight_gradient();
  at::set_num_threads(4);
  const Tensor four = poses_of(inputs_), gradient_of_four = weight_gradient();
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(one, four));
  EXPECT_TRUE(torch::equal(gradient_of_one, gradient_of_four));
}

TEST_F(FusedScaledDistanceCpu, TakesTensorsThatAreNotContiguous) {
  RoutingInputs turned = inputs_;
  turned.children = inputs_.children.transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(torch::equal(poses_of(turned), poses_of(inputs_)));
}

TEST_F(FusedScaledDistanceCpu, WithAMeanOfItsOwnAnImageDoesNotSeeTheOthers) {
  RoutingInputs alone = inputs_;
  alone.children = inputs_.children.narrow(0, 3, 1);
  EXPECT_TRUE(torch::equal(poses_of(alone, Mean::kSample),
                           poses_of(inputs_, Mean::kSample).narrow(0, 3, 1)));
  EXPECT_FALSE(torch::equal(poses_of(alone), poses_of(inputs_).narrow(0, 3, 1)));
}

TEST_F(FusedScaledDistanceCpu, SaysWhatItHasNoKernelFor) {
  try {
    fused_scaled_distance_routing(inputs_.children.to(torch::kFloat64), inputs_.weight,
                                  inputs_.bias, {}, DistanceMean::kBatch);
    FAIL() << "took children in float64";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("20x96x8 (Double"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace remcaps
