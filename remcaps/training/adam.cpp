#include "remcaps/training/adam.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps {

using torch::Tensor;

Adam::Adam(const NamedParameters& parameters, AdamOptions options) : options_(options) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    parameters_.emplace_back(name, parameter);
    first_.push_back(torch::zeros_like(parameter, torch::MemoryFormat::Contiguous).detach());
    second_.push_back(torch::zeros_like(parameter, torch::MemoryFormat::Contiguous).detach());
  }
  one_pass_ = options_.kernels == KernelPath::kFused &&
              std::all_of(parameters_.begin(), parameters_.end(), [](const auto& item) {
                return item.second.scalar_type() == torch::kFloat32 && item.second.is_contiguous();
              });
}

void Adam::step(double lr) {
  one_pass_ ? fused_step(lr, {}) : plain_step(lr);
}

void Adam::step(double lr, const UpdateRule& rule) {
  check(one_pass_, "Adam: a step with a pruning rule needs the fused kernel");
  fused_step(lr, rule);
}

void Adam::step(const Tensor& numbers, const UpdateRule& rule) {
  check(one_pass_, "Adam: a recorded step needs the fused kernel");
  torch::NoGradGuard no_grad;
  fused_update(with_gradients(rule), constants(), numbers);
}

Tensor Adam::numbers(double lr, double lambda, int64_t first, int64_t count) const {
  check(!parameters_.empty(), "Adam: there is nothing to train");
  return step_numbers(lr, constants(), first, count, lambda, parameters_[0].second.device());
}

void Adam::fused_step(double lr, const UpdateRule& rule) {
  torch::NoGradGuard no_grad;
  ++steps_;
  const std::vector<UpdatedParameter> updated = with_gradients(rule);
  if (updated.empty()) return;
  fused_update(updated, constants(), numbers(lr, rule.lambda, steps_, 1).view({3}));
}

std::vector<UpdatedParameter> Adam::with_gradients(const UpdateRule& rule) const {
  if (rule.before) rule.before();
  std::vector<UpdatedParameter> updated;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, weight] = parameters_[i];
    if (!weight.grad().defined()) continue;
    const auto dead = rule.dead.find(name);
    updated.push_back({.parameter = weight,
                       .gradient = weight.grad().contiguous(),
                       .first = first_[i],
                       .second = second_[i],
                       .dead = dead == rule.dead.end() ? Tensor() : dead->second,
                       .shrink = rule.shrunk.count(name) > 0});
  }
  return updated;
}

void Adam::plain_step(double lr) {
  torch::NoGradGuard no_grad;
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double step_size = lr / (1 - std::pow(options_.beta1, t));
  const double second_correction = std::sqrt(1 - std::pow(options_.beta2, t));

  std::vector<Tensor> weights, gradients, first, second;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& weight = parameters_[i].second;
    if (!weight.grad().defined()) continue;
    weights.push_back(weight);
    gradients.push_back(weight.grad());
    first.push_back(first_[i]);
    second.push_back(second_[i]);
  }
  if (weights.empty()) return;

  // On a GPU a foreach call is one kernel for all tensors; on a CPU it is a plain loop.
  at::_foreach_mul_(first, options_.beta1);
  at::_foreach_add_(first, gradients, 1 - options_.beta1);
  at::_foreach_mul_(second, options_.beta2);
  at::_foreach_addcmul_(second, gradients, gradients, 1 - options_.beta2);
  std::vector<Tensor> denominator = at::_foreach_sqrt(second);
  at::_foreach_div_(denominator, second_correction);
  at::_foreach_add_(denominator, options_.eps);
  at::_foreach_addcdiv_(weights, first, denominator, -step_size);
}

void Adam::zero_grad() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = Tensor();
}

TensorMap Adam::state() const {
  TensorMap state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    state["m." + parameters_[i].first] = first_[i];
    state["v." + parameters_[i].first] = second_[i];
  }
  return state;
}

void Adam::load_state(const TensorMap& state, int64_t steps) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (auto [prefix, moment] : {std::pair{"m.", &first_[i]}, std::pair{"v.", &second_[i]}}) {
      const std::string name = prefix + parameters_[i].first;
      const auto found = state.find(name);
      check(found != state.end(), "the optimiser's state has no {}", name);
      check(found->second.sizes() == moment->sizes(), "the optimiser's {} is {}; expected {}", name,
            fmt::join(found->second.sizes(), "x"), fmt::join(moment->sizes(), "x"));
      moment->copy_(found->second);
      check(moment->isfinite().all().item<bool>() &&
                (moment != &second_[i] || moment->ge(0).all().item<bool>()),
            "the optimiser's {} has values that no training gives", name);
    }
  }
  steps_ = steps;
}

}  // namespace remcaps
