#include "remcaps/capsule/routing/iterated.h"

namespace remcaps {

std::optional<RoutingParameter> bias_parameter(BiasUse use, const RoutedLayer& layer) {
  if (use == BiasUse::kNone) return std::nullopt;
  return RoutingParameter{.name = "bias",
                          .shape = {layer.parents, layer.parent_dim},
                          .mean = layer.bias_mean,
                          .std = layer.bias_std};
}

RoutingCost iterated_cost(const RoutedLayer& layer, int64_t iterations) {
  const int64_t pairs = layer.children * layer.parents;
  return {.multiply_adds = pairs * layer.parent_dim * (layer.child_dim + 2 * iterations - 1),
          .vote_floats = pairs * layer.parent_dim,
          .activation_floats = pairs + layer.parents * layer.parent_dim};
}

bool wants_full_gradient(RoutingGradient gradient) {
  return gradient == RoutingGradient::kFull && torch::GradMode::is_enabled();
}

Tensor zero_logits(const Tensor& votes) {
  return torch::zeros({votes.size(0), votes.size(1), votes.size(2)}, votes.options());
}

void bind_iterations(ConfigSection& keys, int64_t& iterations, RoutingGradient& gradient) {
  keys.key("iterations", iterations, {1, 16});
  keys.key("gradient", gradient, {"last", "full"});
}

}  // namespace remcaps
