#include "remcaps/training/capsule_pruning.h"

#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/models/dr_capsnet.h"

namespace remcaps {
namespace {

constexpr int64_t kTypes = 4, kPlaces = 9, kChildren = kTypes * kPlaces, kClasses = 3;

const ModelContext kContext{.input = {1, 12, 12}, .classes = kClasses};

// 4 types of capsules on a 3 x 3 grid.
std::shared_ptr<DrCapsNet> small_network() {
  torch::manual_seed(7);
  return std::make_shared<DrCapsNet>(kContext, DrCapsNetOptions{.conv_channels = 6,
                                                                .conv_kernel = 5,
                                                                .primary_types = kTypes,
                                                                .primary_dim = 4,
                                                                .primary_kernel = 3,
                                                                .primary_stride = 2,
                                                                .class_dim = 5});
}

// Poses of `images` images: those of `quiet` children hardly differ from image to image.
ChildCapsules made_up(int64_t images, const Tensor& quiet, uint64_t seed) {
  torch::manual_seed(seed);
  const Tensor labels = torch::arange(images).remainder(kClasses);
  Tensor poses = torch::randn({images, kChildren, 4}) * 0.2;
  // What the class is can be seen in every child.
  poses.add_(torch::one_hot(labels, 4).to(torch::kFloat).unsqueeze(1), 0.6);
  const Tensor still = torch::full({images, quiet.numel(), 4}, 0.3) +
                       torch::randn({images, quiet.numel(), 4}) * 1e-3;
  poses.index_copy_(1, quiet, still);
  return {poses.to(torch::kHalf), labels};
}

double loss_on(CapsNet& model, const ChildCapsules& all) {
  const torch::NoGradGuard no_grad;
  const auto result = prunable_class_layer(model).forward(all.poses.to(torch::kFloat));
  return margin_losses(result.poses.norm(2, -1), all.labels).mean().item<double>();
}

Tensor capsules_left(const CapsNet& model) {
  return prunable_class_layer(model).weight.detach().flatten(1).ne(0).any(1);
}

TEST(GivenVotes, AreMeanAndVarianceOfCouplingsTimesVotes) {
  const auto model = small_network();
  FcCapsImpl& layer = prunable_class_layer(*model);
  const ChildCapsules all = made_up(70, torch::arange(2), 1);
  const GivenVotes given = given_votes(layer, all);
  const torch::NoGradGuard no_grad;
  const Tensor poses = all.poses.to(torch::kFloat);
  const Tensor votes = torch::einsum("ijdk,bik->bijd", {layer.weight, poses});
  const Tensor gifts = (votes * layer.forward(poses).coupling.unsqueeze(-1)).to(torch::kDouble);
  EXPECT_TRUE(given.mean.allclose(gifts.mean(0), 0, 1e-6));
  EXPECT_TRUE(
      given.variance.allclose(gifts.var(0, /*unbiased=*/false).flatten(1).sum(1), 1e-3, 1e-7));
}

TEST(CapsulePruning, CapsulesThatAlwaysGiveTheSameGoIntoTheBias) {
  const auto model = small_network();
  const Tensor quiet = torch::arange(0, kChildren, 2);
  const ChildCapsules training = made_up(120, quiet, 2), validation = made_up(90, quiet, 3);
  const double before = loss_on(*model, validation);
  CapsulePruningOptions options;
  options.epochs = 0;
  options.tolerance = 0.02;
  options.step = 0.5;
  options.least = kChildren / 2;
  const auto tries = prune_capsules(*model, training, validation, model->class_grids(), options);
  EXPECT_NEAR(tries.front().loss, before, 1e-5);
  EXPECT_EQ(tries.front().capsules, kChildren);
  EXPECT_EQ(tries.back().capsules, kChildren / 2);
  EXPECT_LE(tries.back().loss, before * 1.02);
  const Tensor left = capsules_left(*model);
  EXPECT_FALSE(left.index_select(0, quiet).any().item<bool>());
  // The network with zeros is the one that was measured without these capsules.
  EXPECT_NEAR(loss_on(*model, validation), tries.back().loss, 1e-5);
}

TEST(CapsulePruning, NothingGoesIfTheLossWouldBeAboveTheBound) {
  const auto model = small_network();
  const Tensor none = torch::empty({0}, torch::kLong);
  const ChildCapsules training = made_up(120, none, 2), validation = made_up(90, none, 3);
  const double before = loss_on(*model, validation);
  CapsulePruningOptions options;
  options.epochs = 0;
  options.tolerance = 0;
  options.group = CapsuleGroup::kType;
  const auto tries = prune_capsules(*model, training, validation, model->class_grids(), options);
  ASSERT_GT(tries.size(), 2u);
  int64_t fewest = kTypes;
  double lowest = tries.front().loss;
  for (const CapsulePruningTry& of : tries) {
    EXPECT_EQ(of.within, of.loss <= lowest) << of.groups;
    lowest = std::min(lowest, of.loss);
    if (of.within) fewest = std::min(fewest, of.groups);
  }
  EXPECT_EQ(tries.back().groups, fewest);
  EXPECT_LE(loss_on(*model, validation), before + 1e-6);
}

TEST(CapsulePruning, TrainsTheCapsulesThatStay) {
  const auto model = small_network();
  const Tensor none = torch::empty({0}, torch::kLong);
  const ChildCapsules training = made_up(240, none, 2), validation = made_up(90, none, 3);
  CapsulePruningOptions options;
  options.tolerance = 1000;  // four capsules are all that may stay
  options.lr = 0.01;
  options.batch = 32;
  options.least = 4;
  options.quantizer = Quantizer::uniform(11);
  const auto tries = prune_capsules(*model, training, validation, model->class_grids(), options);
  EXPECT_EQ(tries.back().capsules, 4) << "a few capsules show the class as well as all";
  EXPECT_LT(tries.back().loss, tries.front().loss);
  EXPECT_GT(tries.back().accuracy_quantized.value(), 0.9);
  EXPECT_EQ(capsules_left(*model).sum().item<int64_t>(), 4);
  EXPECT_NEAR(loss_on(*model, validation), tries.back().loss, 1e-5);
}

// A network with random weights becomes much better by training its class layer alone.
TEST(CapsulePruning, TheToleranceIsRelativeToTheBestNetworkSoFar) {
  const auto model = small_network();
  const Tensor none = torch::empty({0}, torch::kLong);
  const ChildCapsules training = made_up(240, none, 2), validation = made_up(90, none, 3);
  CapsulePruningOptions options;
  options.tolerance = 0.5;
  options.lr = 0.01;
  options.batch = 32;
  const auto tries = prune_capsules(*model, training, validation, model->class_grids(), options);
  double lowest = tries.front().loss;
  for (const CapsulePruningTry& of : tries) {
    EXPECT_EQ(of.within, of.loss <= lowest * 1.5) << of.groups;
    if (of.within) lowest = std::min(lowest, of.loss);
  }
  EXPECT_LT(lowest * 1.5, tries.front().loss);
  EXPECT_LE(tries.back().loss, lowest * 1.5);
}

TEST(CapsulePruning, AWholeTypeTakesItsFiltersAlong) {
  const auto model = small_network();
  const Tensor quiet = torch::arange(kPlaces, 2 * kPlaces);  // the second type
  const ChildCapsules training = made_up(120, quiet, 2), validation = made_up(90, quiet, 3);
  CapsulePruningOptions options;
  options.epochs = 0;
  options.tolerance = 0.02;
  options.group = CapsuleGroup::kType;
  options.least = 3;
  prune_capsules(*model, training, validation, model->class_grids(), options);
  const Tensor left = capsules_left(*model).view({kTypes, kPlaces});
  EXPECT_TRUE(left.any(1).equal(torch::tensor({true, false, true, true})));
  const Tensor filters = model->named_parameters()["primary.conv.weight"].detach();
  EXPECT_TRUE(filters.flatten(1).ne(0).any(1).view({kTypes, 4}).any(1).equal(left.any(1)));
}

TEST(CapsulePruning, NeedsDynamicRoutingWithABias) {
  EXPECT_NO_THROW(prunable_class_layer(*small_network()));
  ConfigSection keys(YAML::Node(), "test", "model");
  const auto other = make_network("eff-capsnet", {.input = {1, 28, 28}}, keys);
  EXPECT_THROW(prunable_class_layer(*other), UsageError);
}

}  // namespace
}  // namespace remcaps
