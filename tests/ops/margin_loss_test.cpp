// The margin loss: its plain code, and the fused kernel against it.
#include "remcaps/ops/margin_loss.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <limits>

#include "remcaps/base/error.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;

TEST(MarginLoss, PenalisesAShortTrueClassAndLongOthers) {
  const Tensor activations = torch::tensor({{0.4f, 0.3f, 0.05f}});
  const Tensor labels = torch::tensor({0}, torch::kInt64);
  EXPECT_NEAR(margin_loss(activations, labels).item<double>(), 0.5 * 0.5 + 0.5 * 0.2 * 0.2, 1e-7);
}

TEST(MarginLoss, IsTheMeanOfTheLossesOfTheImages) {
  const Tensor activations = torch::rand({5, 4});
  const Tensor labels = torch::tensor({0, 3, 1, 1, 2}, torch::kInt64);
  const Tensor losses = margin_losses(activations, labels);
  ASSERT_EQ(losses.sizes(), torch::IntArrayRef({5}));
  EXPECT_NEAR(losses.mean().item<double>(), margin_loss(activations, labels).item<double>(), 1e-7);
}

TEST(MarginLoss, CrossEntropyIsMinusTheLogarithmOfTheTrueClasss) {
  const Tensor logits = torch::tensor({{0.5, -1.0, 2.0}, {3.0, 0.0, 0.0}}).requires_grad_();
  const Tensor labels = torch::tensor({2, 1}, torch::kInt64);
  const MarginOptions options{.cross_entropy = true};
  const Tensor losses = margin_losses(torch::softmax(logits, 1), labels, options);
  const Tensor expected = -torch::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(torch::allclose(losses, expected, 1e-6, 1e-6));
  margin_loss(torch::softmax(logits, 1), labels, options, KernelPath::kFused).backward();
  const Tensor gradient =
      (torch::softmax(logits, 1) - torch::tensor({{0.0, 0.0, 1.0}, {0.0, 1.0, 0.0}})) / 2;
  EXPECT_TRUE(torch::allclose(logits.grad(), gradient.detach(), 1e-5, 1e-6));
  // A class that is surely not there has a finite loss.
  EXPECT_TRUE(std::isfinite(
      margin_loss(torch::tensor({{1.0, 0.0}}), torch::ones({1}, torch::kInt64), options)
          .item<double>()));
}

TEST(MarginLoss, RefusesLabelsOfAnotherBatch) {
  EXPECT_THROW(margin_loss(torch::rand({5, 4}), torch::zeros({3}, torch::kInt64)), Error);
}

class FusedMarginLoss : public ::testing::TestWithParam<std::string> {
 protected:
  torch::Device device() const { return torch::Device(GetParam()); }
};

TEST_P(FusedMarginLoss, AgreesWithThePlainCodeAndSoDoesItsGradient) {
  const MarginOptions margins{.m_plus = 0.95, .m_minus = 0.05, .lambda = 0.8};
  for (const auto& [batch, classes] :
       {std::pair<int64_t, int64_t>{128, 10}, {1, 1}, {37, 200}, {700, 5}}) {
    torch::manual_seed(batch);
    const Tensor values = torch::rand({batch, classes});
    const Tensor labels = torch::randint(classes, {batch}, torch::kInt64);
    const Tensor reference = values.to(torch::kFloat64).requires_grad_();
    const Tensor activations = values.to(device()).requires_grad_();
    const Tensor expected = margin_loss(reference, labels, margins) * 3;
    const Tensor found = fused_margin_loss(activations, labels.to(device()), margins) * 3;
    EXPECT_TRUE(close_to(found.detach(), expected.detach(), 1e-6));
    expected.backward();
    found.backward();
    EXPECT_TRUE(close_to(activations.grad(), reference.grad(), 1e-6));
  }
}

TEST_P(FusedMarginLoss, OfNanIsNan) {
  const Tensor activations = torch::full({2, 3}, std::numeric_limits<float>::quiet_NaN(), device());
  const Tensor labels = torch::zeros({2}, torch::TensorOptions(torch::kInt64).device(device()));
  EXPECT_TRUE(torch::isnan(fused_margin_loss(activations, labels)).item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedMarginLoss, ::testing::ValuesIn(kernel_devices()),
                         [](const auto& info) { return info.param; });

TEST(FusedMarginLossCpu, NamesWhatItCannotTake) {
  const Tensor labels = torch::zeros({3}, torch::kInt64);
  EXPECT_THROW(fused_margin_loss(torch::zeros({2, 3}), labels), Error);
  EXPECT_THROW(fused_margin_loss(torch::zeros({3, 3}, torch::kFloat64), labels), Error);
}

}  // namespace
}  // namespace remcaps
