// Which parameters a pruning strategy may touch.
#pragma once

#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// The recipe keys every strategy shares.
struct PruningScope {
  /// Patterns of layer or parameter names; empty: the network's own prunable_layers().
  std::vector<std::string> layers;
  /// Patterns of parameters in those layers that keep all their values. Published: biases; for
  /// DeepCaps also the class capsules' matrices.
  std::vector<std::string> exclude = {"*bias*"};
};
void bind(ConfigSection& section, PruningScope& scope);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Whether a layer pattern selects a parameter: it matches the whole name or one of the modules the
/// parameter lies in ("class" selects "class.weight").
bool selects(const std::string& pattern, const std::string& parameter);

/// Parameters of the scope's layers, frozen ones included, in the network's order.
std::vector<NamedTensor> layer_parameters(const CapsNet& model, const PruningScope& scope);

/// Those of them that are trained and may be set to zero. Error where a pattern selects nothing or
/// nothing is left.
std::vector<NamedTensor> prunable_weights(const CapsNet& model, const PruningScope& scope);

}  // namespace remcaps
