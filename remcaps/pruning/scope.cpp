#include "remcaps/pruning/scope.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

namespace {

const std::vector<std::string>& layer_patterns(const PrunableNetwork& network,
                                               const PruningScope& scope) {
  return scope.layers.empty() ? network.prunable_layers : scope.layers;
}

bool excluded(const std::string& name, const PruningScope& scope) {
  return std::any_of(scope.exclude.begin(), scope.exclude.end(),
                     [&](const std::string& pattern) { return selects(pattern, name); });
}

// Without this check a misspelt name would silently leave its layer unpruned.
void check_patterns(const PrunableNetwork& network, const PruningScope& scope) {
  for (const std::string& pattern : layer_patterns(network, scope)) {
    const bool found =
        std::any_of(network.parameters.begin(), network.parameters.end(),
                    [&](const NamedTensor& parameter) { return selects(pattern, parameter.name); });
    if (!found)
      throw UsageError(fmt::format("pruning.layers: no parameter of {} matches {}{}", network.name,
                                   pattern, suggestion(pattern, network.prunable_layers)));
  }
}

}  // namespace

PrunableNetwork::PrunableNetwork(const CapsNet& model)
    : name(model.name()), network(&model), prunable_layers(model.prunable_layers()) {
  for (const auto& parameter : model.named_parameters())
    parameters.push_back({parameter.key(), parameter.value()});
}

void PrunableNetwork::zero_grad() const {
  for (const NamedTensor& parameter : parameters) parameter.tensor.mutable_grad() = Tensor();
}

void bind(ConfigSection& section, PruningScope& scope) {
  section.key("layers", scope.layers);
  section.key("exclude", scope.exclude);
}

bool selects(const std::string& pattern, const std::string& parameter) {
  for (size_t end = parameter.find('.'); end != std::string::npos;
       end = parameter.find('.', end + 1)) {
    if (matches_pattern(pattern, parameter.substr(0, end))) return true;
  }
  return matches_pattern(pattern, parameter);
}

std::vector<NamedTensor> layer_parameters(const PrunableNetwork& network,
                                          const PruningScope& scope) {
  const std::vector<std::string>& patterns = layer_patterns(network, scope);
  std::vector<NamedTensor> result;
  for (const NamedTensor& parameter : network.parameters) {
    const bool selected =
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return selects(pattern, parameter.name); });
    if (selected) result.push_back(parameter);
  }
  return result;
}

std::vector<NamedTensor> prunable_weights(const PrunableNetwork& network,
                                          const PruningScope& scope) {
  check_patterns(network, scope);
  std::vector<NamedTensor> result;
  for (NamedTensor& parameter : layer_parameters(network, scope)) {
    if (parameter.tensor.requires_grad() && !excluded(parameter.name, scope))
      result.push_back(std::move(parameter));
  }
  if (result.empty())
    throw UsageError(
        fmt::format("pruning: layers [{}] without exclude [{}] leave no parameter of {} to prune",
                    fmt::join(layer_patterns(network, scope), ", "), fmt::join(scope.exclude, ", "),
                    network.name));
  return result;
}

}  // namespace remcaps
