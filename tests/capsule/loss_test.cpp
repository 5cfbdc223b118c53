#include "remcaps/capsule/loss.h"

#include "tests/capsule/numeric.h"
#include "tests/golden/golden_case.h"

namespace remcaps {
namespace {

TEST(MarginLoss, KnowsANetworkThatFindsEveryClass) {
  const MarginOptions margins;
  const Tensor labels = torch::tensor({0, 3, 1}, torch::kInt64);
  const auto loss = [&](double length) {
    return margin_loss(torch::full({3, 5}, length), labels, margins).item<double>();
  };
  EXPECT_TRUE(finds_all_classes(loss(1.0), 5, margins));
  EXPECT_TRUE(finds_all_classes(loss(0.97), 5, margins));
  EXPECT_FALSE(finds_all_classes(loss(0.8), 5, margins));
  EXPECT_FALSE(finds_all_classes(loss(0.0), 5, margins));
  EXPECT_FALSE(finds_all_classes(loss(1.0), 1, margins));
}

TEST(GoldenMarginLoss, EqualsThePublishedOneAtBothMargins) {
  const TensorFile rules = testing::GoldenCase::rules();
  const Tensor activations = rules.load("margin/activations"), labels = rules.load("margin/labels");
  EXPECT_NEAR(margin_loss(activations, labels).item<double>(),
              rules.load("margin/loss").item<double>(), 1e-6);
  EXPECT_NEAR(margin_loss(activations, labels, {0.95, 0.05, 0.8}).item<double>(),
              rules.load("margin/loss_95_05_08").item<double>(), 1e-6);
}

TEST(ReconstructionLoss, SumsOverAnImageAndAveragesOverTheBatch) {
  const Tensor images = torch::zeros({2, 1, 2, 2});
  const Tensor reconstruction = torch::tensor({1.0f, 1.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0.0f, 2.0f});
  EXPECT_NEAR(reconstruction_loss(reconstruction.view({2, 4}), images).item<double>(), 4.0, 1e-7);
}

}  // namespace
}  // namespace remcaps
