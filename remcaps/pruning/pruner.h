// The moments at which a pruning strategy may act, and the registry of strategies.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/models/model.h"
#include "remcaps/pruning/sparsity.h"

namespace remcaps {

/// What a strategy may ask of the training around it.
struct PruningContext {
  CapsNet& model;
  int64_t epoch = 0;
  uint64_t seed = 0;
  /// Sample-weighted mean margin loss on the validation set (evaluation mode, no augmentation, no
  /// reconstruction term), read back once per call.
  std::function<double()> validation_loss = {};
  /// Makes the gradients of one training batch (for strategies that score at initialisation).
  std::function<void()> gradients_of_one_batch = {};
  /// Validation loss and accuracy of this epoch, for strategies that wait for a plateau.
  double epoch_validation_loss = 0;
  double epoch_validation_accuracy = 0;
};

/// What one call of after_epoch did, for metrics.csv and the log.
struct PruningReport {
  bool pruned = false;
  double threshold = 0;
  int64_t evaluations = 0;  ///< validation passes the search took
  double loss_before = 0, loss_after = 0;
};

/// The two moments of a step as data: an optimiser that updates everything in one pass takes them
/// along. Parameters go by their names.
struct UpdateRule {
  double lambda = 0;             ///< before the optimiser: p <- p - lambda p max(0, 1 - |dL/dp|)
  std::set<std::string> shrunk;  ///< the parameters that holds for
  std::map<std::string, torch::Tensor> dead;  ///< bool; after it these weights are set to zero
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  /// Before the first step of a fresh run.
  virtual void at_initialisation(PruningContext&) {}
  /// At the start of every epoch.
  virtual void before_epoch(PruningContext&) {}
  /// Gradients are there, the optimiser has not stepped yet.
  virtual void after_backward(PruningContext&) {}
  /// The optimiser has stepped: masks are applied here.
  virtual void after_step(PruningContext&) {}
  /// What after_backward and after_step would do in this step, where a strategy can say it so: it
  /// is then done in their place, unless the run is on the plain path (kernels: reference).
  virtual std::optional<UpdateRule> update_rule(PruningContext&) { return std::nullopt; }
  virtual PruningReport after_epoch(PruningContext&) { return {}; }

  /// Masks and counters for the checkpoint; restored before the first step after a resume.
  virtual std::map<std::string, torch::Tensor> state() const { return {}; }
  virtual void load_state(const std::map<std::string, torch::Tensor>&) {}
};

/// Makes the strategy the recipe's `pruning` section names (default "none").
std::unique_ptr<Pruner> make_pruner(ConfigSection& section);
std::vector<std::string> pruner_names();

/// Adds a strategy of the user's own to the registry; the factory binds its recipe keys.
using PrunerFactory = std::function<std::unique_ptr<Pruner>(ConfigSection& section)>;
void register_pruner(const std::string& name, PrunerFactory factory);

}  // namespace remcaps
