#include "remcaps/pruning/sparsity.h"

#include <algorithm>
#include <map>
#include <set>

#include "remcaps/pruning/scope.h"

namespace remcaps {

namespace {

double share_of_zeros(int64_t parameters, int64_t nonzero) {
  if (parameters == 0) return 0;
  return static_cast<double>(parameters - nonzero) / static_cast<double>(parameters);
}

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

}  // namespace

double Sparsity::published() const {
  return share_of_zeros(prunable_parameters, prunable_nonzero);
}

double Sparsity::overall() const {
  return share_of_zeros(parameters, nonzero);
}

Sparsity measure_sparsity(const CapsNet& model) {
  const torch::NoGradGuard no_grad;
  std::vector<std::string> prunable;
  for (const NamedTensor& parameter : layer_parameters(model, PruningScope{}))
    prunable.push_back(parameter.name);

  const auto parameters = model.named_parameters();
  std::vector<Tensor> counts;
  for (const auto& parameter : parameters) counts.push_back(parameter.value().ne(0).sum());
  if (counts.empty()) return {};
  const Tensor nonzeros = torch::stack(counts).cpu();  // one read-back
  const int64_t* nonzero_of = nonzeros.data_ptr<int64_t>();

  // A layer of which only a part is prunable (capsules with a prior) has a row for each parameter.
  const auto is_prunable = [&](const std::string& name) {
    return std::find(prunable.begin(), prunable.end(), name) != prunable.end();
  };
  std::map<std::string, std::set<bool>> kinds;
  for (const auto& parameter : parameters)
    kinds[module_of(parameter.key())].insert(is_prunable(parameter.key()));

  Sparsity sparsity;
  for (const auto& parameter : parameters) {
    const int64_t total = parameter.value().numel(), nonzero = *nonzero_of++;
    const bool counts = is_prunable(parameter.key());
    if (parameter.value().requires_grad()) {
      sparsity.parameters += total;
      sparsity.nonzero += nonzero;
    }
    if (counts) {
      sparsity.prunable_parameters += total;
      sparsity.prunable_nonzero += nonzero;
    }
    const std::string module = module_of(parameter.key());
    const std::string& name = kinds.at(module).size() > 1 ? parameter.key() : module;
    if (sparsity.layers.empty() || sparsity.layers.back().name != name)
      sparsity.layers.push_back({name, 0, 0, counts});
    sparsity.layers.back().parameters += total;
    sparsity.layers.back().nonzero += nonzero;
  }
  return sparsity;
}

DeadStructures count_dead_structures(const CapsNet& model) {
  const torch::NoGradGuard no_grad;
  std::vector<std::string> capsule_weights;
  for (const RoutingLayer& layer : model.routing_layers())
    capsule_weights.push_back(layer.name + ".weight");

  DeadStructures dead;
  for (const NamedTensor& parameter : layer_parameters(model, PruningScope{})) {
    const Tensor weight = parameter.tensor.detach();
    const bool of_capsules = std::find(capsule_weights.begin(), capsule_weights.end(),
                                       parameter.name) != capsule_weights.end();
    if (weight.dim() < 3 || weight.numel() == 0) continue;  // a bias
    if (!of_capsules) {                                     // [filters, ...]
      dead.filters += weight.size(0);
      dead.dead_filters += weight.flatten(1).eq(0).all(1).sum().item<int64_t>();
      continue;
    }
    const Tensor zero = weight.eq(0).flatten(2).all(2);  // [I, J], of [I, J, Dout, Din]
    dead.blocks += zero.numel();
    dead.dead_blocks += zero.sum().item<int64_t>();
    dead.capsules += zero.size(0);
    dead.dead_capsules += zero.all(1).sum().item<int64_t>();
  }
  return dead;
}

}  // namespace remcaps
