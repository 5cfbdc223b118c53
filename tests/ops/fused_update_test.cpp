// The fused optimiser step, compared with separate tensor operations in float64.
#include "remcaps/ops/update.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

class FusedUpdate : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }

  // Shapes that are no multiple of anything; every third parameter has no mask, every second is
  // not shrunk.
  std::vector<UpdatedParameter> random_parameters() const {
    torch::manual_seed(3);
    std::vector<UpdatedParameter> parameters;
    for (const int64_t size : {1, 5, 16384, 16385, 70001, 3}) {
      UpdatedParameter item;
      item.parameter = torch::randn({size}, device());
      item.gradient = torch::randn({size}, device());
      item.first = torch::zeros({size}, device());
      item.second = torch::zeros({size}, device());
      if (parameters.size() % 3 != 0) item.dead = torch::rand({size}, device()) < 0.3;
      item.shrink = parameters.size() % 2 == 0;
      parameters.push_back(item);
    }
    return parameters;
  }
};

void plain_update(UpdatedParameter& item, const UpdateConstants& c, double lr, int64_t step,
                  double lambda) {
  Tensor& p = item.parameter;
  const Tensor& g = item.gradient;
  if (item.shrink) p = p - lambda * p * torch::relu(1 - g.abs());
  item.first = c.beta1 * item.first + (1 - c.beta1) * g;
  item.second = c.beta2 * item.second + (1 - c.beta2) * g * g;
  const auto t = static_cast<double>(step);
  p = p - lr / (1 - std::pow(c.beta1, t)) * item.first /
              (item.second.sqrt() / std::sqrt(1 - std::pow(c.beta2, t)) + c.eps);
  if (item.dead.defined()) p = p.masked_fill(item.dead, 0);
}

TEST_P(FusedUpdate, AgreesWithSeparateOperationsOverSeveralSteps) {
  const UpdateConstants constants;
  std::vector<UpdatedParameter> fused = random_parameters(), plain;
  for (const UpdatedParameter& item : fused) {
    UpdatedParameter copy = item;
    for (Tensor* tensor : {&copy.parameter, &copy.gradient, &copy.first, &copy.second})
      *tensor = tensor->to(torch::kFloat64);
    plain.push_back(copy);
  }
  for (int64_t step = 1; step <= 5; ++step) {
    fused_update(fused, constants, step_numbers(1e-3, constants, step, 1e-2, device()));
    for (size_t i = 0; i < fused.size(); ++i) {
      plain_update(plain[i], constants, 1e-3, step, 1e-2);
      EXPECT_TRUE(close_to(fused[i].parameter, plain[i].parameter, 1e-6));
      EXPECT_TRUE(close_to(fused[i].first, plain[i].first, 1e-6));
      EXPECT_TRUE(close_to(fused[i].second, plain[i].second, 1e-6));
      fused[i].gradient.mul_(-0.7);
      plain[i].gradient.mul_(-0.7);
    }
  }
}

TEST_P(FusedUpdate, APrunedWeightIsExactlyZeroWhateverItsGradient) {
  std::vector<UpdatedParameter> parameters = random_parameters();
  fused_update(parameters, {}, step_numbers(0.1, {}, 1, 0, device()));
  for (const UpdatedParameter& item : parameters) {
    if (item.dead.defined()) {
      EXPECT_EQ(item.parameter.masked_select(item.dead).count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST_P(FusedUpdate, TakesMoreTensorsThanOneLaunchHolds) {
  std::vector<UpdatedParameter> parameters;
  for (int i = 0; i < 131; ++i) {
    UpdatedParameter item;
    item.parameter = torch::full({i % 7 + 1}, static_cast<float>(i), device());
    item.gradient = torch::ones_like(item.parameter);
    item.first = torch::zeros_like(item.parameter);
    item.second = torch::zeros_like(item.parameter);
    parameters.push_back(item);
  }
  fused_update(parameters, {}, step_numbers(0.5, {}, 1, 0, device()));
  for (int i = 0; i < 131; ++i)
    EXPECT_NEAR(parameters[i].parameter[0].item<float>(), i - 0.5, 1e-3) << i;
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedUpdate, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

// Depthwise weights: channels-last and contiguous are one order, under different strides.
TEST(FusedUpdateCpu, StridesOfDimensionsOfOneDoNotMatter) {
  const Tensor values = torch::randn({4, 1, 3, 3});
  UpdatedParameter item;
  item.parameter = torch::zeros({4, 1, 3, 3});
  item.gradient = torch::empty_strided({4, 1, 3, 3}, {9, 1, 3, 1}).copy_(values);
  item.first = torch::zeros_like(item.parameter);
  item.second = torch::zeros_like(item.parameter);
  ASSERT_NE(item.gradient.strides(), item.parameter.strides());
  const UpdateConstants constants;
  fused_update({item}, constants, step_numbers(1e-3, constants, 1, 0, torch::kCPU));
  EXPECT_TRUE(close_to(item.first, (1 - constants.beta1) * values, 1e-6));
}

TEST(FusedUpdateCpu, RefusesAGradientInAnotherLayout) {
  UpdatedParameter item;
  item.parameter = torch::zeros({4, 6});
  item.gradient = torch::zeros({6, 4}).t();
  item.first = torch::zeros({4, 6});
  item.second = torch::zeros({4, 6});
  EXPECT_THROW(fused_update({item}, {}, step_numbers(0.1, {}, 1, 0, torch::kCPU)), Error);
}

}  // namespace
}  // namespace remcaps
