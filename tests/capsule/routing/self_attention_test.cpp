#include "remcaps/capsule/routing/self_attention.h"

#include "tests/capsule/numeric.h"

namespace remcaps {
namespace {

using testing::expect_close;
using testing::finite_differences;
using testing::random_doubles;

TEST(SelfAttentionRouting, EqualsTheDefinitionWithTheWholeAttentionMatrix) {
  torch::manual_seed(6);
  const Tensor children = random_doubles({2, 4, 3}), weight = random_doubles({4, 5, 6, 3});
  const Tensor prior = random_doubles({4, 5}, 0.1);
  const RoutingResult result = self_attention_routing(children, weight, prior, {});
  const Tensor votes = make_votes(children, weight);
  const Tensor attention = torch::einsum("bijd,bkjd->bikj", {votes, votes}) / std::sqrt(6.0);
  const Tensor coupling = torch::softmax(attention.sum(2), 2) + prior;
  expect_close(result.coupling, coupling, 1e-12);
  expect_close(result.poses, squash_exponential((coupling.unsqueeze(-1) * votes).sum(1)), 1e-12);
  EXPECT_FALSE(result.clamped.defined());
}

TEST(SelfAttentionRouting, AVoteCanAgreeWithItselfOnly) {
  torch::manual_seed(9);
  const Tensor children = random_doubles({2, 4, 3}), weight = random_doubles({4, 5, 6, 3});
  const Tensor prior = random_doubles({4, 5}, 0.1);
  const SelfAttentionRouting options{.agreement = SelfAttentionRouting::Agreement::kSelf};
  const Tensor lengths = make_votes(children, weight).norm(2, -1);
  expect_close(self_attention_routing(children, weight, prior, options).coupling,
               torch::softmax(lengths.square() / std::sqrt(6.0), 2) + prior, 1e-12);
}

TEST(SelfAttentionRouting, AnExactPriorIsAddedAfterTheRounding) {
  torch::manual_seed(10);
  const Tensor children = torch::randn({3, 4, 2}), weight = torch::randn({4, 5, 3, 2});
  const Tensor prior = torch::randn({4, 5});
  const SelfAttentionRouting options{.prior = SelfAttentionRouting::Prior::kExact};
  const auto softmax = [&](const RoutingRequest& request) {
    return self_attention_routing(children, weight, torch::zeros({4, 5}), options, request);
  };
  RoutingRequest rounded;
  rounded.quantizer = Quantizer::uniform(11);
  for (const RoutingRequest& request : {RoutingRequest(), rounded}) {
    const RoutingResult result = self_attention_routing(children, weight, prior, options, request);
    EXPECT_TRUE(torch::equal(result.coupling, softmax(request).coupling));
    expect_close(
        result.poses,
        options.squash(weighted_sum(result.coupling + prior, make_votes(children, weight)), {-1}),
        1e-6);
    EXPECT_FALSE(result.clamped.defined());
  }
}

TEST(SelfAttentionRouting, ClampsAndCountsCouplingsThePriorPushesOut) {
  torch::manual_seed(7);
  const Tensor children = torch::randn({3, 4, 2}), weight = torch::randn({4, 2, 3, 2}) * 0.01;
  Tensor prior = torch::zeros({4, 2});
  prior[0][0] = 2.0f;   // above 1 in each of the 3 images
  prior[1][1] = -2.0f;  // below 0
  RoutingRequest request;
  request.quantizer = Quantizer::uniform(11);
  const RoutingResult result = self_attention_routing(children, weight, prior, {}, request);
  EXPECT_EQ(result.clamped.item<int64_t>(), 6);
  EXPECT_EQ(result.coupling.select(1, 0).select(1, 0).min().item<float>(), 1.0f);
  EXPECT_EQ(result.coupling.select(1, 1).select(1, 1).max().item<float>(), 0.0f);
}

TEST(SelfAttentionRouting, GradientEqualsFiniteDifferences) {
  torch::manual_seed(8);
  const Tensor children = random_doubles({2, 3, 2}).requires_grad_();
  const Tensor weight = random_doubles({3, 3, 2, 2}).requires_grad_();
  const Tensor prior = random_doubles({3, 3}, 0.1).requires_grad_();
  const Tensor probe = random_doubles({2, 3, 2});
  const auto loss = [&] {
    return (self_attention_routing(children, weight, prior, {}).poses * probe).sum();
  };
  loss().backward();
  for (const Tensor& input : {children, weight, prior})
    expect_close(input.grad(), finite_differences(loss, input), 1e-7);
}

}  // namespace
}  // namespace remcaps
