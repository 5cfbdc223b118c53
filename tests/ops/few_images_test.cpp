// Routing of a few images with packed matrices, compared with the plain code in float64.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "remcaps/base/error.h"
#include "remcaps/ops/routing.h"
#include "tests/ops/kernel_testing.h"
#include "tests/ops/routing_testing.h"

namespace remcaps {
namespace {

using kernels::cpu::most_few_images;

const RoutingCase kDrCapsNet{"DrCapsNet", 1, 150, 10, 8, 16};

FusedRoutingOptions options_of(const RoutingCase& c, const std::optional<Quantizer>& quantizer) {
  FusedRoutingOptions options;
  options.iterations = c.iterations;
  options.bias_every_iteration = c.bias == BiasUse::kEvery;
  options.return_couplings = true;
  if (quantizer) {
    options.level_edges = quantizer->edges();
    options.level_centres = quantizer->centres();
  }
  return options;
}

std::tuple<Tensor, Tensor> route_packed(const RoutingInputs& inputs,
                                        const FusedRoutingOptions& options) {
  const PackedMatrices packed(inputs.weight);
  return fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, options, &packed);
}

void expect_plain_result(const RoutingCase& c, bool pruned,
                         const std::optional<Quantizer>& quantizer = {}) {
  SCOPED_TRACE(::testing::Message()
               << c.batch << " x " << c.children << " -> " << c.parents << ", " << c.child_dim
               << "D -> " << c.parent_dim << "D, " << c.iterations << " iterations");
  const torch::NoGradGuard no_grad;
  const RoutingInputs inputs = RoutingInputs::random(c, pruned);
  const RoutingInputs exact = inputs.leaves(torch::kFloat64, "cpu");
  const RoutingResult expected = dynamic_routing(
      exact.children, exact.weight, exact.bias,
      {.iterations = c.iterations, .bias = c.bias, .kernels = KernelPath::kReference},
      {.quantizer = quantizer});
  const auto [poses, couplings] = route_packed(inputs, options_of(c, quantizer));
  EXPECT_TRUE(close_to(poses, expected.poses, 1e-5));
  EXPECT_TRUE(close_to(couplings, expected.coupling, 1e-5));
}

class FewImages : public ::testing::TestWithParam<RoutingCase> {};

TEST_P(FewImages, AgreeWithThePlainCode) {
  expect_plain_result(GetParam(), /*pruned=*/false);
  expect_plain_result(GetParam(), /*pruned=*/true);
}

TEST_P(FewImages, AgreeWithQuantizedCouplings) {
  expect_plain_result(GetParam(), /*pruned=*/false, Quantizer::uniform(11));
  expect_plain_result(GetParam(), /*pruned=*/true, Quantizer::bins(128));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FewImages,
    ::testing::Values(kDrCapsNet, RoutingCase{"DeepCaps", 1, 80, 10, 8, 32, 3, BiasUse::kLast},
                      RoutingCase{"TinyImageNet", 1, 36, 200, 8, 16},
                      RoutingCase{"SixteenWide", 1, 33, 7, 16, 16},
                      RoutingCase{"OneChild", 1, 1, 4, 8, 16},
                      RoutingCase{"OneParent", 1, 50, 1, 8, 16},
                      RoutingCase{"OneOfEach", 1, 1, 1, 1, 1},
                      RoutingCase{"OneIteration", 1, 40, 10, 8, 16, 1},
                      RoutingCase{"NoBias", 1, 40, 10, 8, 16, 3, BiasUse::kNone}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(FewImages, AgreeOnRandomShapes) {
  std::mt19937 random(7);
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int problem = 0; problem < 60; ++problem) {
    const RoutingCase c{
        "",       up_to(most_few_images()),          up_to(130), up_to(12), up_to(18), up_to(20),
        up_to(4), static_cast<BiasUse>(up_to(3) - 1)};
    expect_plain_result(c, /*pruned=*/problem % 2 == 0);
  }
}

TEST(FewImages, DependOnNeitherThreadsNorEachOther) {
  RoutingCase c = kDrCapsNet;
  c.batch = most_few_images();
  const RoutingInputs inputs = RoutingInputs::random(c);
  const auto run = [&](int64_t first, int64_t count, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto result = route_packed(
        {inputs.children.narrow(0, first, count), inputs.weight, inputs.bias}, options_of(c, {}));
    at::set_num_threads(before);
    return result;
  };
  const auto [poses, couplings] = run(0, c.batch, 1);
  EXPECT_TRUE(torch::equal(std::get<0>(run(0, c.batch, 3)), poses));
  const auto [last_poses, last_couplings] = run(c.batch - 1, 1, 3);
  EXPECT_TRUE(torch::equal(last_poses, poses.narrow(0, c.batch - 1, 1)));
  EXPECT_TRUE(torch::equal(last_couplings, couplings.narrow(0, c.batch - 1, 1)));
}

TEST(FewImages, ManyAndThoseWithAGradientAreRoutedAsWithoutPackedMatrices) {
  RoutingCase c = kDrCapsNet;
  c.batch = most_few_images() + 1;
  const FusedRoutingOptions options = options_of(c, {});
  const auto unpacked = [&](const RoutingInputs& inputs) {
    return std::get<0>(fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, options));
  };
  const RoutingInputs many = RoutingInputs::random(c);
  EXPECT_TRUE(torch::equal(std::get<0>(route_packed(many, options)), unpacked(many)));
  const RoutingInputs one = RoutingInputs::random(kDrCapsNet).leaves(torch::kFloat32, "cpu");
  const Tensor poses = std::get<0>(route_packed(one, options));
  EXPECT_TRUE(poses.requires_grad());
  EXPECT_TRUE(torch::equal(poses, unpacked(one)));
}

TEST(FewImages, TakeNoMatricesOfAnotherLayer) {
  const RoutingInputs inputs = RoutingInputs::random(kDrCapsNet);
  const PackedMatrices packed(inputs.weight.narrow(0, 0, 100));
  EXPECT_THROW(fused_dynamic_routing(inputs.children, inputs.weight, inputs.bias, {}, &packed),
               Error);
  EXPECT_THROW(PackedMatrices(inputs.weight.to(torch::kFloat64)), Error);
}

}  // namespace
}  // namespace remcaps
