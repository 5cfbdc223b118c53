// What the algorithms that iterate have in common: options, bias, costs, and the call of their
// fused kernels.
#pragma once

#include <fmt/format.h>

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

/// The numbers of an iterated algorithm's node in a graph. False if the runtime cannot squash so.
template <typename Options>
bool describe_iterated(const Options& options, const char* op, GraphNode& node) {
  if (options.squash.form != Squash::Form::kNorm) return false;
  node.op = op;
  node.numbers["iterations"] = static_cast<double>(options.iterations);
  node.numbers["bias_every_iteration"] = options.bias == BiasUse::kEvery ? 1 : 0;
  node.numbers["epsilon"] = options.squash.epsilon;
  return true;
}

/// What fully connected algorithms that iterate answer in the same way.
template <typename Options>
class IteratedAlgorithm : public RoutingAlgorithm {
 public:
  /// `op` is the name of its node in a graph.
  IteratedAlgorithm(const Options& options, const char* name, const char* op)
      : options_(options), name_(name), op_(op) {}

  std::string name() const override { return name_; }
  std::string label() const override { return fmt::format("{} r={}", name_, options_.iterations); }
  int64_t iterations() const override { return options_.iterations; }
  Squash squash() const override { return options_.squash; }
  std::optional<RoutingParameter> parameter(const RoutedLayer& layer) const override {
    return bias_parameter(options_.bias, layer);
  }
  RoutingCost cost(const RoutedLayer& layer) const override {
    return iterated_cost(layer, options_.iterations);
  }
  bool describe(GraphNode& node) const override { return describe_iterated(options_, op_, node); }
  RoutingPtr with_kernels(KernelPath kernels) const override {
    Options options = options_;
    options.kernels = kernels;
    return options;
  }

 protected:
  const Options options_;

 private:
  const char *name_, *op_;
};

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
