// What the algorithms that iterate have in common: options, bias, costs, and the call of their
// fused kernels.
#pragma once

#include "remcaps/capsule/routing/routing.h"
#include "remcaps/ops/routing.h"

namespace remcaps {

inline bool bias_now(BiasUse use, bool last_iteration) {
  return use == BiasUse::kEvery || (use == BiasUse::kLast && last_iteration);
}

/// The bias [J, Dout] as an algorithm's learned tensor; none with BiasUse::kNone.
std::optional<RoutingParameter> bias_parameter(BiasUse use, const RoutedLayer& layer);

/// One product per vote, then a weighted sum in every iteration and an agreement in all but the
/// last one.
RoutingCost iterated_cost(const RoutedLayer& layer, int64_t iterations);

/// Whether a full gradient is asked for and autograd records one.
bool wants_full_gradient(RoutingGradient gradient);

/// b_ij = 0, [B, I, J].
Tensor zero_logits(const Tensor& votes);

/// Binds `iterations` and `gradient`.
void bind_iterations(ConfigSection& keys, int64_t& iterations, RoutingGradient& gradient);

/// Binds `iterations`, `gradient` and `bias`.
template <typename Options>
void bind_iterated(ConfigSection& keys, Options& options) {
  bind_iterations(keys, options.iterations, options.gradient);
  keys.key("bias", options.bias, {"none", "every", "last"});
}

/// The fused kernels know the norm form of squash only.
template <typename Options>
bool wants_fused(const Options& options) {
  return options.kernels == KernelPath::kFused && options.squash.form == Squash::Form::kNorm;
}

template <typename Options>
FusedRoutingOptions fused_options(const Options& options, const RoutingRequest& request) {
  FusedRoutingOptions fused;
  fused.iterations = options.iterations;
  fused.epsilon = options.squash.epsilon;
  fused.bias_every_iteration = options.bias == BiasUse::kEvery;
  fused.full_gradient = wants_full_gradient(options.gradient);
  fused.return_couplings = request.coupling;
  if (request.quantizer) {
    fused.level_edges = request.quantizer->edges();
    fused.level_centres = request.quantizer->centres();
  }
  return fused;
}

}  // namespace remcaps
