// Which parameters a pruning strategy may touch.
#pragma once

#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/models/model.h"

namespace remcaps {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What pruning sees of a network: its parameters by name. Every CapsNet converts to it; a network
/// of another kind can fill it in.
struct PrunableNetwork {
  PrunableNetwork() = default;
  PrunableNetwork(const CapsNet& model);  // NOLINT: meant to convert

  /// Forgets the gradients.
  void zero_grad() const;

  std::string name;                          ///< for messages
  const CapsNet* network = nullptr;          ///< if it is one: groups of capsules need it
  std::vector<NamedTensor> parameters;       ///< frozen ones included
  std::vector<std::string> prunable_layers;  ///< patterns, as in PruningScope::layers
  /// Patterns of the parameters whose magnitudes a threshold search starts from. Published:
  /// "weight" is part of the name.
  std::vector<std::string> searched = {"*weight*"};
};

/// The recipe keys that all strategies share.
struct PruningScope {
  /// Patterns of layer or parameter names. Empty: the network's prunable layers.
  std::vector<std::string> layers;
  /// Patterns of parameters in those layers that are not pruned. The published code leaves out
  /// biases, and in DeepCaps also the class capsules' matrices.
  std::vector<std::string> exclude = {"*bias*"};
};
void bind(ConfigSection& section, PruningScope& scope);

/// Whether a pattern matches a parameter's name or the name of a module around it ("class" selects
/// "class.weight").
bool selects(const std::string& pattern, const std::string& parameter);

/// Parameters of the scope's layers, frozen ones included, in the network's order.
std::vector<NamedTensor> layer_parameters(const PrunableNetwork& network,
                                          const PruningScope& scope);

/// The parameters of the scope's layers that are trained and not excluded. Error if a pattern
/// selects nothing or no parameter is left.
std::vector<NamedTensor> prunable_weights(const PrunableNetwork& network,
                                          const PruningScope& scope);

}  // namespace remcaps
