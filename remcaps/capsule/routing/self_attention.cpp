#include "remcaps/capsule/routing/self_attention.h"

#include <fmt/ranges.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/ops/routing.h"

namespace remcaps {
namespace {

using Agreement = SelfAttentionRouting::Agreement;
using Prior = SelfAttentionRouting::Prior;

class SelfAttentionAlgorithm final : public RoutingAlgorithm {
 public:
  explicit SelfAttentionAlgorithm(const SelfAttentionRouting& options) : options_(options) {}

  std::string name() const override { return "self-attention"; }
  Squash squash() const override { return options_.squash; }
  /// The prior is a property of the couplings, not a weight: pruning leaves it alone.
  std::optional<RoutingParameter> parameter(const RoutedLayer& layer) const override {
    return RoutingParameter{
        .name = "prior", .shape = {layer.children, layer.parents}, .prunable = false};
  }
  bool describe(GraphNode& node) const override {
    node.op = "self_attention_routing";
    node.numbers["epsilon"] = options_.squash.epsilon;
    node.words["form"] = form_name(options_.squash);
    node.words["agreement"] = options_.agreement == Agreement::kAll ? "all" : "self";
    node.words["prior"] = options_.prior == Prior::kRounded ? "rounded" : "exact";
    return true;
  }
  RoutingPtr configured(ConfigSection& keys) const override {
    SelfAttentionRouting options = options_;
    keys.key("agreement", options.agreement, {"all", "self"});
    keys.key("prior", options.prior, {"rounded", "exact"});
    return options;
  }
  /// One product per vote, one agreement, one weighted sum.
  RoutingCost cost(const RoutedLayer& layer) const override {
    const int64_t pairs = layer.children * layer.parents;
    return {.multiply_adds = pairs * layer.parent_dim * (layer.child_dim + 2),
            .vote_floats = pairs * layer.parent_dim,
            .activation_floats = pairs + layer.parents * layer.parent_dim};
  }

 protected:
  Tensor vote_weights(const Tensor& coupling, const Tensor& prior) const override {
    return options_.prior == Prior::kExact ? coupling + prior : coupling;
  }
  RoutingResult run(const Tensor& children, const Tensor& weight, const Tensor& prior,
                    const RoutingRequest& request, const PackedMatrices*) const override {
    return self_attention_routing(children, weight, prior, options_, request);
  }

 private:
  SelfAttentionRouting options_;
};

}  // namespace

SelfAttentionRouting::operator RoutingPtr() const {
  return std::make_shared<SelfAttentionAlgorithm>(*this);
}

RoutingResult self_attention_routing(const Tensor& children, const Tensor& weight,
                                     const Tensor& prior, const SelfAttentionRouting& options,
                                     const RoutingRequest& request) {
  check_routing_inputs("self-attention", children, weight, /*bias=*/{}, /*iterations=*/1);
  check(prior.dim() == 2 && prior.size(0) == weight.size(0) && prior.size(1) == weight.size(1),
        "self-attention routing: prior [{}]; expected [I, J] of weight [{}]",
        fmt::join(prior.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  const Tensor votes = make_votes(children, weight);  // û_ij, [B, I, J, Dout]
  // a_ij = sum_k <û_ij, û_kj> / sqrt(D) = <û_ij, sum_k û_kj> / sqrt(D): no I x I matrix is needed.
  const Tensor agreement = options.agreement == Agreement::kAll
                               ? torch::einsum("bijd,bjd->bij", {votes, votes.sum(1)})
                               : votes.square().sum(-1);
  const Tensor attention =
      torch::softmax(agreement / std::sqrt(static_cast<double>(votes.size(3))), /*dim=*/2);
  if (options.prior == Prior::kExact) {
    const Tensor coupling = quantized(attention, request);
    return {options.squash(weighted_sum(coupling + prior, votes), {-1}), coupling, {}};
  }
  Tensor coupling = attention + prior;  // c_ij, [B, I, J]
  Tensor clamped;
  if (request.quantizer) {
    clamped = torch::logical_or(coupling.lt(0), coupling.gt(1)).sum();
    coupling = quantized(coupling.clamp(0, 1), request);
  }
  return {options.squash(weighted_sum(coupling, votes), {-1}), coupling, clamped};
}

}  // namespace remcaps
