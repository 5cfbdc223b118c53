// The interface of a pruning strategy, and the registry of strategies.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/pruning/scope.h"
#include "remcaps/pruning/update_rule.h"

namespace remcaps {

struct GivenVotes;  // remcaps/pruning/capsules.h

/// What the training loop offers to a strategy.
struct PruningContext {
  PrunableNetwork model;
  int64_t epoch = 0;
  uint64_t seed = 0;
  /// Mean margin loss over the validation images (evaluation mode, no augmentation, no
  /// reconstruction term). It may throw to stop the run: the strategy must then leave weights and
  /// its own state as they were before after_epoch().
  std::function<double()> validation_loss = {};
  /// Entropy of the parse trees and effective parts of the answers, over the same images.
  std::function<double()> validation_entropy = {}, validation_parts = {};
  /// What the children of the class layer give their parents, over the same images.
  std::function<GivenVotes()> given_votes = {};
  /// Computes the gradients of one training batch, for strategies that score weights at
  /// initialisation.
  std::function<void()> gradients_of_one_batch = {};
  /// Validation loss and accuracy of this epoch, before pruning.
  double epoch_validation_loss = 0;
  double epoch_validation_accuracy = 0;
  /// Accuracy of always naming the most frequent class of the validation set.
  double chance_accuracy = 0;
};

/// What one call of after_epoch() did, for metrics.csv and the log.
struct PruningReport {
  bool pruned = false;
  double threshold = 0;
  int64_t evaluations = 0;  ///< passes over the validation set
  double loss_before = 0, loss_after = 0;
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  /// Before the first step of a new run.
  virtual void at_initialisation(PruningContext&) {}
  /// At the start of every epoch.
  virtual void before_epoch(PruningContext&) {}
  /// After the backward pass, before the optimiser's step.
  virtual void after_backward(PruningContext&) {}
  /// After the optimiser's step. Masks are applied here.
  virtual void after_step(PruningContext&) {}
  /// What after_backward() and after_step() would do in this step. If a strategy returns a rule,
  /// the optimiser applies it and the two functions are not called, unless the run uses the plain
  /// tensor code (kernels: reference).
  virtual std::optional<UpdateRule> update_rule(PruningContext&) { return std::nullopt; }
  /// After validation, at the end of every epoch.
  virtual PruningReport after_epoch(PruningContext&) { return {}; }

  /// Masks and counters for the checkpoint.
  virtual std::map<std::string, torch::Tensor> state() const { return {}; }
  /// Called before the first step of a resumed run.
  virtual void load_state(const std::map<std::string, torch::Tensor>&) {}
};

/// Makes the strategy that a recipe's `pruning` section names (default "none"). The headers of the
/// strategies have a make_pruner() each that takes an option struct instead.
std::unique_ptr<Pruner> make_pruner(ConfigSection& section);

/// The `pruning` section of a recipe for a strategy with these options:
///   recipe.pruning = pruning_section("lobster", LobsterOptions{.tolerance = 0.01});
template <typename Options>
YAML::Node pruning_section(std::string strategy, Options options) {
  ConfigSection section(YAML::Node(), "", "pruning");
  section.key("strategy", strategy);
  bind(section, options);
  return section.resolved();
}

std::vector<std::string> pruner_names();

/// Adds a strategy under a name that recipes can use. The factory reads its keys from the section.
using PrunerFactory = std::function<std::unique_ptr<Pruner>(ConfigSection& section)>;
void register_pruner(const std::string& name, PrunerFactory factory);

}  // namespace remcaps
