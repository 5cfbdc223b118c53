#include "remcaps/capsule/routing/conv3d.h"

#include "remcaps/ops/quantize.h"
#include "tests/capsule/numeric.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

TEST(Conv3dRouting, CouplingsOfAnInputTypeSumToOneOverOutputsAndPositions) {
  torch::manual_seed(3);
  const Tensor children = random_doubles({2, 3 * 4, 2, 5});
  const Tensor weight = random_doubles({6 * 4, 1, 3, 3, 3});
  const RoutingResult result = conv3d_routing(children, weight, {}, {}, 4, 4, {});
  ASSERT_EQ(result.poses.sizes(), torch::IntArrayRef({2, 6, 4, 2, 5}));
  ASSERT_EQ(result.coupling.sizes(), torch::IntArrayRef({2, 10, 3, 6}));
  expect_close(result.coupling.sum({1, 3}), torch::ones({2, 3}, torch::kFloat64), 1e-12);
}

TEST(Conv3dRouting, OneIterationGivesUniformCouplings) {
  Conv3dRouting options;
  options.iterations = 1;
  const RoutingResult result = conv3d_routing(
      random_doubles({1, 8, 2, 2}), random_doubles({8, 1, 3, 3, 3}), {}, {}, 4, 4, options);
  EXPECT_TRUE((result.coupling == 1.0 / (2 * 4)).all().item<bool>());
}

TEST(Conv3dRouting, AVoteOfATypeSeesOnlyThatType) {
  torch::manual_seed(4);
  Conv3dRouting options;
  options.iterations = 1;
  Tensor children = torch::zeros({1, 2 * 4, 3, 3}, torch::kFloat64);
  const Tensor weight = random_doubles({4, 1, 3, 3, 3});
  children[0][4 + 3].fill_(1.0);  // a component beyond the kernel's depth of 3
  EXPECT_EQ(
      conv3d_routing(children, weight, {}, {}, 4, 4, options).poses.abs().max().item<double>(),
      0.0);
  children[0][4 + 2].fill_(1.0);
  EXPECT_GT(
      conv3d_routing(children, weight, {}, {}, 4, 4, options).poses.abs().max().item<double>(),
      0.0);
}

TEST(Conv3dRouting, FullGradientEqualsFiniteDifferencesForBothSquashes) {
  torch::manual_seed(5);
  for (const auto over : {Conv3dRouting::SquashOver::kAtoms, Conv3dRouting::SquashOver::kMap}) {
    Conv3dRouting options;
    options.gradient = RoutingGradient::kFull;
    options.squash_over = over;
    const Tensor children = random_doubles({1, 4, 2, 2}).requires_grad_();
    const Tensor weight = random_doubles({4, 1, 2, 3, 3}).requires_grad_();
    const Tensor bias = random_doubles({2, 2}, 0.3).requires_grad_();
    const Tensor probe = random_doubles({1, 2, 2, 2, 2});
    const auto loss = [&] {
      return (conv3d_routing(children, weight, {}, bias, 2, 2, options).poses * probe).sum();
    };
    loss().backward();
    for (const Tensor& input : {children, weight, bias})
      expect_close(input.grad(), finite_differences(loss, input), 1e-6);
  }
}

TEST(Conv3dRouting, ContributionsAddUpToTheLengthOfThePreactivation) {
  torch::manual_seed(3);
  const Tensor children = torch::randn({2, 3 * 8, 4, 5}),
               weight = torch::randn({2 * 8, 1, 3, 3, 3});
  const Tensor conv_bias = torch::randn({2 * 8}), bias = torch::randn({2, 8});
  RoutingRequest request;
  request.contributions = true;
  for (const bool quantized : {false, true}) {
    if (quantized) request.quantizer = Quantizer::uniform(200);
    for (const KernelPath kernels : {KernelPath::kReference, KernelPath::kFused}) {
      const RoutingResult result =
          conv3d_routing(children, weight, conv_bias, bias, 8, 8, {.kernels = kernels}, request);
      ASSERT_EQ(result.contribution.sizes(), result.coupling.sizes());
      const Tensor evidence = result.contribution.sum(2) + result.bias_contribution;  // [B, P, J]
      const Tensor lengths = result.poses.norm(2, 2).flatten(2).transpose(1, 2);      // ||v||
      const Tensor square = evidence.square();
      EXPECT_LT((square / (1 + square) - lengths).abs().max().item<double>(), 1e-5);
    }
  }
}

TEST(Conv3dRouting, QuantizesItsCouplings) {
  torch::manual_seed(6);
  RoutingRequest request;
  request.quantizer = Quantizer::bins(16);
  const RoutingResult result = conv3d_routing(
      random_doubles({1, 8, 2, 2}), random_doubles({8, 1, 3, 3, 3}), {}, {}, 4, 4, {}, request);
  expect_close(quantize(result.coupling, *request.quantizer).to(torch::kFloat64), result.coupling,
               0);
}

// One problem of Conv3D routing on either path, and all that comes out of it.
struct Conv3dProblem {
  int64_t batch, types, child_dim, parents, parent_dim, depth, height, width;
  bool conv_bias, bias;
  std::vector<Tensor> inputs(torch::Device device, torch::ScalarType type) const {
    torch::manual_seed(batch + 10 * types + 100 * depth);
    std::vector<Tensor> made = {random_doubles({batch, types * child_dim, height, width}),
                                random_doubles({parents * parent_dim, 1, depth, 3, 3}, 0.3)};
    if (conv_bias) made.push_back(random_doubles({parents * parent_dim}, 0.2));
    if (bias) made.push_back(random_doubles({parents, parent_dim}, 0.2));
    made[1].narrow(0, 0, parent_dim).zero_();  // a parent whose kernel is pruned
    for (Tensor& input : made) input = input.to(device, type).requires_grad_();
    return made;
  }
};

// Poses, couplings, then the gradients of the inputs.
std::vector<Tensor> run(const Conv3dProblem& problem, const Conv3dRouting& options,
                        const RoutingRequest& request, torch::Device device,
                        torch::ScalarType type) {
  const std::vector<Tensor> inputs = problem.inputs(device, type);
  const RoutingResult result =
      conv3d_routing(inputs[0], inputs[1], problem.conv_bias ? inputs[2] : Tensor(),
                     problem.bias ? inputs.back() : Tensor(), problem.child_dim, problem.parent_dim,
                     options, request);
  const Tensor probe = torch::arange(result.poses.numel(), torch::kFloat64).cos();
  (result.poses * probe.view(result.poses.sizes()).to(device, type)).sum().backward();
  std::vector<Tensor> found = {result.poses.detach(), result.coupling.detach()};
  for (const Tensor& input : inputs) found.push_back(input.grad());
  return found;
}

TEST(Conv3dRouting, BothFormsOfTheVotesGiveTheSameResults) {
  for (const Conv3dProblem& problem : {Conv3dProblem{2, 4, 8, 5, 8, 3, 4, 3, true, false},
                                       Conv3dProblem{1, 3, 4, 2, 6, 4, 1, 1, false, true},
                                       Conv3dProblem{3, 1, 5, 1, 3, 1, 2, 5, true, true},
                                       Conv3dProblem{1, 2, 2, 4, 1, 2, 3, 2, false, false}})
    for (const auto gradient : {RoutingGradient::kLast, RoutingGradient::kFull})
      for (const auto over : {Conv3dRouting::SquashOver::kAtoms, Conv3dRouting::SquashOver::kMap})
        for (const bool quantized : {false, true}) {
          Conv3dRouting options{.gradient = gradient, .squash_over = over};
          RoutingRequest request;
          if (quantized) request.quantizer = Quantizer::bins(64);
          options.kernels = KernelPath::kReference;
          const auto expected = run(problem, options, request, torch::kCPU, torch::kFloat64);
          options.kernels = KernelPath::kFused;
          const auto found = run(problem, options, request, torch::kCPU, torch::kFloat64);
          ASSERT_EQ(found.size(), expected.size());
          for (size_t i = 0; i < found.size(); ++i) {
            SCOPED_TRACE(i);
            EXPECT_TRUE(close_to(found[i], expected[i], 1e-9));
          }
          for (const std::string& device : kernel_devices()) {
            if (quantized) continue;  // a coupling beside an edge may round either way
            const auto floats = run(problem, options, request, device, torch::kFloat32);
            for (size_t i = 0; i < floats.size(); ++i) {
              SCOPED_TRACE(device + " " + std::to_string(i));
              EXPECT_TRUE(close_to(floats[i], expected[i], 2e-5));
            }
          }
        }
}

}  // namespace
}  // namespace remcaps
