#include "remcaps/pruning/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/models/dr_capsnet.h"
#include "remcaps/pruning/lobster_pruner.h"
#include "tests/pruning/toy_network.h"

namespace remcaps {
namespace {

using testing::pruner;
using testing::ToyNetwork;
using testing::values;

constexpr int64_t kTypes = 2, kDim = 3, kSide = 2, kPlaces = kSide * kSide, kChildren = 8;
const std::vector<std::string> kAll = weight_group_names();

// 2 types of capsules of 3 numbers on a 2 x 2 grid.
class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() {
    torch::manual_seed(3);
    model = std::make_shared<DrCapsNet>(ModelContext{.input = {1, 8, 8}, .classes = 3},
                                        DrCapsNetOptions{.conv_channels = 4,
                                                         .conv_kernel = 3,
                                                         .primary_types = kTypes,
                                                         .primary_dim = kDim,
                                                         .primary_kernel = 3,
                                                         .primary_stride = 2,
                                                         .class_dim = 4});
    for (auto& item : model->named_parameters())
      item.value().mutable_grad() = torch::randn_like(item.value()) * 0.04;
  }

  Tensor parameter(const std::string& name) const { return model->named_parameters()[name]; }
  WeightGroups groups(const std::vector<std::string>& kinds) const {
    return WeightGroups(*model, prunable_weights(*model, {}), kinds);
  }
  // How often each weight's groups shrink it, computed group by group.
  std::map<std::string, Tensor> shares(const std::vector<std::string>& kinds) const;

  std::shared_ptr<DrCapsNet> model;
};

// A slice of a parameter, and a group as its slices.
struct Slice {
  std::string name;
  int64_t dimension, index;
};
using Members = std::vector<Slice>;

std::vector<Members> members_of(const std::string& kind) {
  std::vector<Members> groups;
  const auto capsule = [](int64_t i) { return Slice{"class.weight", 0, i}; };
  if (kind == "capsule")
    for (int64_t i = 0; i < kChildren; ++i) groups.push_back({capsule(i)});
  if (kind == "type")
    for (int64_t type = 0; type < kTypes; ++type) {
      Members group;
      for (int64_t place = 0; place < kPlaces; ++place)
        group.push_back(capsule(type * kPlaces + place));
      for (int64_t d = 0; d < kDim; ++d)
        group.push_back({"primary.conv.weight", 0, type * kDim + d});
      groups.push_back(group);
    }
  if (kind == "place")
    for (int64_t place = 0; place < kPlaces; ++place)
      groups.push_back({capsule(place), capsule(kPlaces + place)});
  if (kind == "filter") {
    for (int64_t f = 0; f < 4; ++f) groups.push_back({{"conv1.weight", 0, f}});
    for (int64_t f = 0; f < kTypes * kDim; ++f) groups.push_back({{"primary.conv.weight", 0, f}});
  }
  if (kind == "channel")
    for (int64_t c = 0; c < 4; ++c) groups.push_back({{"primary.conv.weight", 1, c}});
  return groups;
}

std::map<std::string, Tensor> GroupsTest::shares(const std::vector<std::string>& kinds) const {
  const torch::NoGradGuard no_grad;
  std::map<std::string, Tensor> shares;
  for (const auto& item : model->named_parameters())
    shares[item.key()] = torch::zeros_like(item.value());
  for (const std::string& kind : kinds)
    for (const Members& group : members_of(kind)) {
      double squares = 0;
      for (const auto& [name, dimension, index] : group)
        squares += parameter(name).grad().select(dimension, index).square().sum().item<double>();
      for (const auto& [name, dimension, index] : group)
        shares.at(name).select(dimension, index).add_(std::max(0.0, 1 - std::sqrt(squares)));
    }
  return shares;
}

TEST_F(GroupsTest, ShrinkByTheNormOfTheirGradient) {
  std::vector<std::vector<std::string>> cases = {kAll};
  for (const std::string& kind : kAll) cases.push_back({kind});
  for (const auto& kinds : cases) {
    SCOPED_TRACE(::testing::PrintToString(kinds));
    const auto expected = shares(kinds);
    std::map<std::string, Tensor> before;
    for (const auto& item : model->named_parameters())
      before[item.key()] = item.value().detach().clone();
    groups(kinds).shrink(0.01);
    bool shrunk = false;
    for (const auto& item : model->named_parameters()) {
      const Tensor& share = expected.at(item.key());
      shrunk = shrunk || share.gt(0).any().item<bool>();
      // A type's filters, and filters and channels, shrink one after the other.
      EXPECT_TRUE(item.value().allclose(before.at(item.key()) * (1 - 0.01 * share), 1e-3, 1e-7))
          << item.key();
    }
    EXPECT_TRUE(shrunk) << "the test has no group that the loss ignores";
  }
}

TEST_F(GroupsTest, ThatTheLossFeelsDoNotShrink) {
  parameter("conv1.weight").mutable_grad()[1].fill_(1);  // a norm of 3
  const Tensor before = parameter("conv1.weight").detach().clone();
  groups({"filter"}).shrink(0.1);
  const Tensor changed = parameter("conv1.weight").ne(before).flatten(1).any(1);
  EXPECT_FALSE(changed[1].item<bool>());
  EXPECT_TRUE(changed[0].item<bool>());
}

TEST_F(GroupsTest, FiltersAndChannelsAreAsLargeAsTheirWeights) {
  const auto sizes = groups({"filter", "channel"}).sizes(std::nullopt).sizes;
  EXPECT_EQ(sizes.count("class.weight"), 0u);
  const Tensor weight = parameter("primary.conv.weight").detach();
  const Tensor all = weight.square().mean().sqrt(),
               of_filters = weight.square().mean({1, 2, 3}, /*keepdim=*/true).sqrt(),
               of_channels = weight.square().mean({0, 2, 3}, /*keepdim=*/true).sqrt();
  EXPECT_TRUE(
      sizes.at("primary.conv.weight").allclose(torch::minimum(of_filters, of_channels) / all));
  EXPECT_THAT(sizes.at("conv1.weight").sizes(), ::testing::ElementsAre(4, 1, 1, 1))
      << "the channel of a grey image is no group";
}

TEST_F(GroupsTest, CapsulesAreAsLargeAsTheirGiftsDiffer) {
  GivenVotes given{torch::zeros({kChildren, 3, 4}, torch::kDouble),
                   torch::tensor({1., 4., 9., 16., 0., 1., 4., 9.}, torch::kDouble)};
  const auto sizes_of = [&](const std::vector<std::string>& kinds, const std::string& name) {
    return values(groups(kinds).sizes(given).sizes.at(name) * std::sqrt(44. / 8));
  };
  using ::testing::FloatNear;
  using ::testing::Pointwise;
  const auto near = [](const std::vector<float>& expected) {
    return Pointwise(FloatNear(1e-4f), expected);
  };
  EXPECT_THAT(sizes_of({"capsule"}, "class.weight"), near({1, 2, 3, 4, 0, 1, 2, 3}));
  // The last capsule of a type takes its filters along.
  EXPECT_THAT(sizes_of({"capsule"}, "primary.conv.weight"), near({4, 4, 4, 3, 3, 3}));
  const float first = std::sqrt(7.5f), second = std::sqrt(3.5f);
  EXPECT_THAT(sizes_of({"type"}, "class.weight"),
              near({first, first, first, first, second, second, second, second}));
  EXPECT_THAT(sizes_of({"place"}, "class.weight"),
              near({std::sqrt(0.5f), std::sqrt(2.5f), std::sqrt(6.5f), std::sqrt(12.5f),
                    std::sqrt(0.5f), std::sqrt(2.5f), std::sqrt(6.5f), std::sqrt(12.5f)}));
  EXPECT_THAT(
      sizes_of({"place", "capsule"}, "class.weight"),
      near({std::sqrt(0.5f), std::sqrt(2.5f), std::sqrt(6.5f), std::sqrt(12.5f), 0, 1, 2, 3}));
}

// A capsule that gives the same to every image goes into the bias, and the answers stay.
TEST_F(GroupsTest, CapsulesThatGoLeaveTheirMean) {
  const torch::NoGradGuard no_grad;
  FcCapsImpl& layer = prunable_class_layer(*model);
  Tensor poses = torch::randn({50, kChildren, kDim});
  for (const int64_t still : {1, 6}) poses.select(1, still).copy_(torch::tensor({.5, -.3, .2}));
  const auto answer = [&] { return layer.forward(poses).poses; };
  GivenVotesSums sums(layer);
  sums.add(poses, layer.forward(poses).coupling);
  GivenVotes given = sums.result();
  const GroupedWeights grouped = groups({"capsule"}).sizes(given);
  const Tensor bias = layer.routing_parameter.clone(), weight = layer.weight.clone();
  const Tensor size = grouped.sizes.at("class.weight").flatten();
  const double threshold = std::get<0>(size.sort())[1].item<double>() * 1.001;
  grouped.on_apply(threshold);
  const Tensor expected = bias + (given.mean[1] + given.mean[6]).to(torch::kFloat32);
  EXPECT_TRUE(layer.routing_parameter.allclose(expected, 1e-5, 1e-6));
  layer.weight.index_fill_(0, torch::tensor({1, 6}), 0);
  const Tensor with_mean = answer();
  layer.routing_parameter.copy_(bias);
  const Tensor with_zero = answer();
  layer.weight.copy_(weight);
  const Tensor before = answer();
  EXPECT_LT((with_mean - before).square().sum().item<double>(),
            0.5 * (with_zero - before).square().sum().item<double>());
  grouped.on_apply(threshold);
  grouped.on_apply(0);
  EXPECT_TRUE(torch::equal(layer.routing_parameter, bias));
}

TEST_F(GroupsTest, AreRefusedWhereThereAreNone) {
  const auto message = [](const std::function<void()>& make) -> std::string {
    try {
      make();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([] { pruner("{strategy: lobster, groups: [capsule, row]}"); }),
              HasSubstr("row"));
  EXPECT_THAT(message([&] {
                const PruningScope scope{.layers = {}, .exclude = {"class.weight"}};
                WeightGroups(*model, prunable_weights(*model, scope), {"capsule"});
              }),
              HasSubstr("pruning.exclude"));
  ToyNetwork toy;
  EXPECT_THAT(message([&] { WeightGroups(toy, prunable_weights(toy, {}), {"type"}); }),
              HasSubstr("dynamic routing"));
}

// Stopped at every place in turn: in the search for groups, and in that for weights after it.
TEST_F(GroupsTest, SearchThatIsStoppedLeavesTheNetworkAsItWas) {
  auto lobster = make_pruner(LobsterOptions{.tolerance = 1, .groups = {"filter", "capsule"}});
  PruningContext context{*model};
  int64_t left = 0;
  context.validation_loss = [&]() -> double {
    if (left-- == 0) throw std::runtime_error("stop");
    return 1 + 0.01 * parameter("class.weight").eq(0).sum().item<double>();
  };
  context.given_votes = [&] {
    return GivenVotes{torch::ones({kChildren, 3, 4}, torch::kDouble),
                      torch::arange(kChildren, torch::kDouble)};
  };
  std::map<std::string, Tensor> before;
  for (const auto& item : model->named_parameters())
    before[item.key()] = item.value().detach().clone();
  int64_t stops = 0;
  for (bool ended = false; !ended; ++stops) {
    left = stops;
    try {
      EXPECT_TRUE(lobster->after_epoch(context).pruned);
      ended = true;
    } catch (const std::runtime_error&) {
      for (const auto& item : model->named_parameters())
        EXPECT_TRUE(torch::equal(item.value(), before.at(item.key()))) << item.key();
    }
  }
  EXPECT_GT(stops, 4);
  EXPECT_FALSE(torch::equal(parameter("class.bias"), before.at("class.bias")))
      << "what went has left its mean";
}

// What lobster does between two steps and what its rule does for the one-pass update are the same.
TEST_F(GroupsTest, RuleOfTheOnePassUpdateShrinksGroupsFirst) {
  auto lobster = make_pruner(LobsterOptions{.lambda = 0.01, .groups = {"filter", "capsule"}});
  PruningContext context{*model};
  const auto rule = lobster->update_rule(context);
  ASSERT_TRUE(rule && rule->before);
  const Tensor before = parameter("class.weight").detach().clone();
  rule->before();
  const Tensor by_groups = parameter("class.weight").detach().clone();
  EXPECT_FALSE(torch::equal(by_groups, before));
  {
    const torch::NoGradGuard no_grad;
    parameter("class.weight").copy_(before);
  }
  lobster->after_backward(context);
  Tensor expected = by_groups;
  lobster_shrink(expected, parameter("class.weight").grad(), 0.01);
  EXPECT_TRUE(torch::equal(parameter("class.weight"), expected));
}

}  // namespace
}  // namespace remcaps
