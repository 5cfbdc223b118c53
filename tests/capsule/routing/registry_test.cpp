// How routing algorithms are found by name and configured by a recipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/capsule/routing/self_attention.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;

constexpr RoutedLayer kLayer = {.children = 6, .parents = 4, .child_dim = 3, .parent_dim = 5};

// `routing` after a recipe whose `model` section is `text`, and that section resolved.
std::pair<RoutingPtr, std::string> bound(RoutingPtr routing, const std::string& text) {
  ConfigSection section(YAML::Load(text), "test", "model");
  bind_routing(section, routing);
  section.finish();
  return {routing, YAML::Dump(section.resolved()["routing"])};
}

std::string error_of(const std::string& text) {
  try {
    bound(DynamicRouting{}, text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(RoutingRegistry, FindsEachAlgorithmByItsName) {
  EXPECT_THAT(routing_names(),
              ::testing::IsSupersetOf({"dynamic", "scaled-distance", "self-attention"}));
  for (const std::string& name : routing_names()) EXPECT_EQ(routing_by_name(name)->name(), name);
  EXPECT_THROW(routing_by_name("dynamik"), UsageError);
}

TEST(RoutingRegistry, AnAlgorithmKeepsTheOptionsThatARecipeDoesNotGive) {
  const DynamicRouting own{.bias = BiasUse::kLast, .squash = {Squash::Form::kNorm, 1e-8}};
  const auto [routing, resolved] = bound(own, "{routing: {iterations: 5}}");
  EXPECT_EQ(routing->label(), "dynamic r=5");
  EXPECT_EQ(routing->squash().epsilon, 1e-8);
  EXPECT_EQ(resolved, "algorithm: dynamic\niterations: 5\ngradient: last\nbias: last");
}

TEST(RoutingRegistry, AnotherAlgorithmStartsWithItsOwnDefaults) {
  const DynamicRouting own{.iterations = 7};
  const auto [routing, resolved] = bound(own, "{routing: {algorithm: scaled-distance}}");
  EXPECT_EQ(routing->label(), "scaled-distance r=3");
  EXPECT_EQ(resolved,
            "algorithm: scaled-distance\niterations: 3\ngradient: last\nbias: every\nmean: batch");
  EXPECT_EQ(bound(own, "{routing: {algorithm: self-attention}}").second,
            "algorithm: self-attention\nagreement: all\nprior: rounded");
}

TEST(RoutingRegistry, WrongNamesAndKeysAreErrors) {
  EXPECT_THAT(error_of("{routing: {algorithm: dynamik}}"),
              HasSubstr("one of dynamic, scaled-distance, self-attention"));
  EXPECT_THAT(error_of("{routing: {mean: batch}}"), HasSubstr("model.routing.mean"));
  EXPECT_THAT(error_of("{routing: {algorithm: self-attention, iterations: 3}}"),
              HasSubstr("model.routing.iterations"));
}

TEST(RoutingAlgorithms, SayWhichParameterTheyLearn) {
  const auto bias = RoutingPtr(DynamicRouting{})->parameter(kLayer);
  ASSERT_TRUE(bias.has_value());
  EXPECT_EQ(bias->name, "bias");
  EXPECT_EQ(bias->shape, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(bias->mean, 0.1);
  EXPECT_TRUE(bias->prunable);
  EXPECT_FALSE(RoutingPtr(DynamicRouting{.bias = BiasUse::kNone})->parameter(kLayer).has_value());
  const auto prior = RoutingPtr(SelfAttentionRouting{})->parameter(kLayer);
  ASSERT_TRUE(prior.has_value());
  EXPECT_EQ(prior->shape, (std::vector<int64_t>{6, 4}));
  EXPECT_FALSE(prior->prunable);
}

TEST(RoutingAlgorithms, CountTheirMultiplyAdds) {
  // Votes, three weighted sums and two agreements; self-attention has one of each.
  EXPECT_EQ(RoutingPtr(DynamicRouting{})->cost(kLayer).multiply_adds, 6 * 4 * 5 * (3 + 3 + 2));
  EXPECT_EQ(RoutingPtr(SelfAttentionRouting{})->cost(kLayer).multiply_adds,
            6 * 4 * 5 * (3 + 1 + 1));
}

TEST(RoutingAlgorithms, OnlyABatchMeanMakesImagesDependOnEachOther) {
  using Mean = ScaledDistanceRouting::Mean;
  EXPECT_TRUE(RoutingPtr(ScaledDistanceRouting{.mean = Mean::kBatch})->batch_dependent());
  EXPECT_FALSE(RoutingPtr(ScaledDistanceRouting{.mean = Mean::kSample})->batch_dependent());
  EXPECT_FALSE(RoutingPtr(DynamicRouting{})->batch_dependent());
}

TEST(RoutingAlgorithms, RunOnThePathTheyAreAskedFor) {
  const RoutingPtr fused = DynamicRouting{.iterations = 2};
  EXPECT_TRUE(fused->uses_packed_matrices());
  const RoutingPtr plain = fused->with_kernels(KernelPath::kReference);
  EXPECT_FALSE(plain->uses_packed_matrices());
  EXPECT_EQ(plain->iterations(), 2);
}

}  // namespace
}  // namespace remcaps
