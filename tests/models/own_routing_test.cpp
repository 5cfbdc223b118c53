// A routing algorithm that is not part of the library, as a program of a user's own registers it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/routing.h"
#include "tests/models/make.h"

namespace remcaps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::images;
using testing::make;
using testing::random_images;

// All children of all images have the same couplings: c_ij = softmax_j(sharpness · preference_j).
class PreferenceRouting final : public RoutingAlgorithm {
 public:
  explicit PreferenceRouting(double sharpness = 1.0) : sharpness_(sharpness) {}

  std::string name() const override { return "preference"; }
  std::optional<RoutingParameter> parameter(const RoutedLayer& layer) const override {
    return RoutingParameter{
        .name = "preference", .shape = {layer.parents}, .mean = 0.5, .prunable = false};
  }
  RoutingCost cost(const RoutedLayer& layer) const override {
    const int64_t votes = layer.children * layer.parents * layer.parent_dim;
    return {.multiply_adds = votes * (layer.child_dim + 1), .vote_floats = votes};
  }
  RoutingPtr configured(ConfigSection& keys) const override {
    double sharpness = sharpness_;
    keys.key("sharpness", sharpness, {0.0, 10.0});
    return std::make_shared<PreferenceRouting>(sharpness);
  }

 protected:
  RoutingResult run(const Tensor& children, const Tensor& weight, const Tensor& preference,
                    const RoutingRequest& request, const PackedMatrices*) const override {
    const Tensor votes = make_votes(children, weight);
    const Tensor coupling = quantized(
        torch::softmax(sharpness_ * preference, 0).expand(votes.sizes().slice(0, 3)), request);
    return {squash()(weighted_sum(coupling, votes), {-1}), coupling, {}};
  }

 private:
  double sharpness_;
};

class OwnRouting : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { register_routing(std::make_shared<PreferenceRouting>()); }

  static std::shared_ptr<CapsNet> network(const std::string& keys) {
    return make("dr-capsnet", images(1, 20, 20),
                "{conv_channels: 8, primary_types: 2, hidden: [5], routing: {algorithm: "
                "preference" +
                    keys + "}}");
  }
};

TEST_F(OwnRouting, RunsInANetworkWithItsOptionsFromTheRecipe) {
  const auto model = network(", sharpness: 2");
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()["class.preference"][3].fill_(1.0);
  }
  ForwardOptions options;
  options.trace = true;
  const Forward forward = model->forward(random_images(*model, 2), options);
  ASSERT_EQ(forward.routings.size(), 2u);
  const Tensor coupling = forward.routings[1].coupling;
  ASSERT_EQ(coupling.sizes(), torch::IntArrayRef({2, 5, 10}));
  const double other = std::exp(2 * 0.5), preferred = std::exp(2 * 1.0);
  EXPECT_NEAR(coupling[1][4][3].item<double>(), preferred / (preferred + 9 * other), 1e-6);

  forward.activations.sum().backward();
  EXPECT_GT(model->named_parameters()["class.preference"].grad().abs().max().item<double>(), 0.0);
}

TEST_F(OwnRouting, IsQuantizedLikeTheOthers) {
  const auto model = network("");
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  options.quantizers = {std::nullopt, Quantizer::uniform(4)};  // 0.1 is nearest to level 0
  const Forward forward = model->forward(random_images(*model, 2), options);
  EXPECT_NEAR(forward.routings[0].coupling.min().item<double>(), 0.2, 1e-6);
  EXPECT_LT(forward.routings[1].coupling.max().item<double>(), 1e-6);
}

TEST_F(OwnRouting, ItsParameterAndCostsAreCounted) {
  const auto model = network("");
  const LayerCost row = model->costs().back();
  EXPECT_EQ(row.kind, "FcCaps preference");
  EXPECT_EQ(row.parameters, 5 * 10 * 16 * 8 + 10);
  EXPECT_EQ(row.multiply_adds, 5 * 10 * 16 * (8 + 1));
  EXPECT_THAT(model->prunable_layers(), Contains("class.weight"));
  EXPECT_TRUE(model->images_are_independent());
}

TEST_F(OwnRouting, ItsKeysAreCheckedLikeTheOthers) {
  const auto error_of = [](const std::string& keys) -> std::string {
    try {
      network(keys);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "(no error)";
  };
  EXPECT_THAT(error_of(", sharpness: 11"), HasSubstr("model.routing.sharpness is 11"));
  EXPECT_THAT(error_of(", sharpnes: 1"), HasSubstr("sharpness"));
}

}  // namespace
}  // namespace remcaps
