// Which parameters a pruning strategy may touch.
#pragma once

#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// The recipe keys that all strategies share.
struct PruningScope {
  /// Patterns of layer or parameter names. Empty: the network's prunable_layers().
  std::vector<std::string> layers;
  /// Patterns of parameters in those layers that are not pruned. The published code leaves out
  /// biases, and in DeepCaps also the class capsules' matrices.
  std::vector<std::string> exclude = {"*bias*"};
};
void bind(ConfigSection& section, PruningScope& scope);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Whether a pattern matches a parameter's name or the name of a module around it ("class" selects
/// "class.weight").
bool selects(const std::string& pattern, const std::string& parameter);

/// Parameters of the scope's layers, frozen ones included, in the network's order.
std::vector<NamedTensor> layer_parameters(const CapsNet& model, const PruningScope& scope);

/// The parameters of the scope's layers that are trained and not excluded. Error if a pattern
/// selects nothing or no parameter is left.
std::vector<NamedTensor> prunable_weights(const CapsNet& model, const PruningScope& scope);

}  // namespace remcaps
