#include "remcaps/pruning/scope.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

namespace {

std::vector<std::string> layer_patterns(const CapsNet& model, const PruningScope& scope) {
  return scope.layers.empty() ? model.prunable_layers() : scope.layers;
}

bool excluded(const std::string& name, const PruningScope& scope) {
  return std::any_of(scope.exclude.begin(), scope.exclude.end(),
                     [&](const std::string& pattern) { return selects(pattern, name); });
}

// Without this check a misspelt name would silently leave its layer unpruned.
void check_patterns(const CapsNet& model, const PruningScope& scope) {
  const auto parameters = model.named_parameters();
  for (const std::string& pattern : layer_patterns(model, scope)) {
    const bool found =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const auto& parameter) { return selects(pattern, parameter.key()); });
    if (!found)
      throw UsageError(fmt::format("pruning.layers: no parameter of {} matches {}{}", model.name(),
                                   pattern, suggestion(pattern, model.prunable_layers())));
  }
}

}  // namespace

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

std::vector<NamedTensor> layer_parameters(const CapsNet& model, const PruningScope& scope) {
  const std::vector<std::string> patterns = layer_patterns(model, scope);
  std::vector<NamedTensor> result;
  for (const auto& parameter : model.named_parameters()) {
    const bool selected =
        std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return selects(pattern, parameter.key()); });
    if (selected) result.push_back({parameter.key(), parameter.value()});
  }
  return result;
}

std::vector<NamedTensor> prunable_weights(const CapsNet& model, const PruningScope& scope) {
  check_patterns(model, scope);
  std::vector<NamedTensor> result;
  for (NamedTensor& parameter : layer_parameters(model, scope)) {
    if (parameter.tensor.requires_grad() && !excluded(parameter.name, scope))
      result.push_back(std::move(parameter));
  }
  if (result.empty())
    throw UsageError(
        fmt::format("pruning: layers [{}] without exclude [{}] leave no parameter of {} to prune",
                    fmt::join(layer_patterns(model, scope), ", "), fmt::join(scope.exclude, ", "),
                    model.name()));
  return result;
}

}  // namespace remcaps
