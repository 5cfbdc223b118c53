#include "remcaps/capsule/routing/dynamic.h"

#include "remcaps/capsule/routing/iterated.h"

namespace remcaps {
namespace {

RoutingResult plain_dynamic_routing(const Tensor& children, const Tensor& weight,
                                    const Tensor& bias, const DynamicRouting& options,
                                    const RoutingRequest& request) {
  check_routing_inputs("dynamic", children, weight, bias, options.iterations);
  const Tensor votes = make_votes(children, weight);  // û_ij, [B, I, J, Dout]
  // With the published gradient the early iterations see the votes as constants: W and u get only
  // c_ij dL/ds_j. The bias is not a constant in any iteration, so its gradient is exact.
  const Tensor early_votes = options.gradient == RoutingGradient::kLast ? votes.detach() : votes;
  Tensor logits = zero_logits(votes);  // b_ij, [B, I, J]
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    Tensor coupling = torch::softmax(logits, /*dim=*/2);  // c_ij, [B, I, J]
    if (last) coupling = quantized(coupling, request);
    const Tensor& seen = last ? votes : early_votes;
    Tensor preactivation = weighted_sum(coupling, seen);  // s_j, [B, J, Dout]
    if (bias.defined() && bias_now(options.bias, last)) preactivation = preactivation + bias;
    const Tensor poses = options.squash(preactivation, {-1});  // v_j, [B, J, Dout]
    if (last) return {poses, coupling, {}};
    logits = logits + torch::einsum("bijd,bjd->bij", {seen, poses});  // agreement <û_ij, v_j>
  }
}

class DynamicRoutingAlgorithm final : public IteratedAlgorithm<DynamicRouting> {
 public:
  explicit DynamicRoutingAlgorithm(const DynamicRouting& options)
      : IteratedAlgorithm(options, "dynamic", "dynamic_routing") {}

  bool uses_packed_matrices() const override { return wants_fused(options_); }

  RoutingPtr configured(ConfigSection& keys) const override {
    DynamicRouting options = options_;
    bind(keys, options);
    return options;
  }

 protected:
  Tensor added_bias(const Tensor& bias) const override { return bias; }
  RoutingResult run(const Tensor& children, const Tensor& weight, const Tensor& bias,
                    const RoutingRequest& request, const PackedMatrices* packed) const override {
    return dynamic_routing(children, weight, bias, options_, request, packed);
  }
};

}  // namespace

DynamicRouting::operator RoutingPtr() const {
  return std::make_shared<DynamicRoutingAlgorithm>(*this);
}

void bind(ConfigSection& keys, DynamicRouting& options) {
  bind_iterated(keys, options);
}

RoutingResult dynamic_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                              const DynamicRouting& options, const RoutingRequest& request,
                              const PackedMatrices* packed) {
  if (!wants_fused(options) || !has_fused_dynamic_routing(children, weight))
    return plain_dynamic_routing(children, weight, bias, options, request);
  const auto [poses, coupling] =
      fused_dynamic_routing(children, weight, options.bias == BiasUse::kNone ? Tensor() : bias,
                            fused_options(options, request), packed);
  return {poses, coupling, {}};
}

}  // namespace remcaps
