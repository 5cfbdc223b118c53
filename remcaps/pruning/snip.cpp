#include "remcaps/pruning/snip.h"

#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps {

void bind(ConfigSection& section, SnipOptions& options) {
  bind(section, options.scope);
  section.key("sparsity", options.sparsity, {0.0, 1.0});
}

void SnipPruner::at_initialisation(PruningContext& context) {
  const torch::NoGradGuard no_grad;
  masks_.bind(context.model, options_.scope);
  {
    const torch::AutoGradMode with_grad(true);
    context.gradients_of_one_batch();
  }
  std::vector<torch::Tensor> scores;
  for (const NamedTensor& weight : masks_.weights()) {
    check(weight.tensor.grad().defined(), "snip: {} has no gradient after one batch", weight.name);
    scores.push_back((weight.tensor * weight.tensor.grad()).abs_().flatten());
  }
  const double kept = static_cast<double>(masks_.total()) * (1 - options_.sparsity);
  masks_.keep_highest(torch::cat(scores), std::llround(kept));
  context.model.zero_grad();
}

void SnipPruner::after_step(PruningContext& context) {
  masks_.bind(context.model, options_.scope);
  masks_.apply();
}

std::optional<UpdateRule> SnipPruner::update_rule(PruningContext& context) {
  masks_.bind(context.model, options_.scope);
  return UpdateRule{.lambda = 0, .shrunk = {}, .dead = masks_.dead()};
}

}  // namespace remcaps
