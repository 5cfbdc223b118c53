// Masks: a pruned weight stays exactly zero, whatever the optimiser does.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "remcaps/pruning/scope.h"

namespace remcaps {

class Masks {
 public:
  /// Chooses the weights to watch. A second call changes nothing.
  void bind(const PrunableNetwork& network, const PruningScope& scope);
  bool bound() const { return !weights_.empty(); }

  const std::vector<NamedTensor>& weights() const { return weights_; }
  int64_t total() const;  ///< weights watched
  int64_t pruned() const { return pruned_; }

  /// Marks the weights that are exactly zero now as pruned. The published code does this at the
  /// start of every epoch and after every search.
  void prune_zeros();

  /// Prunes all but the `keep` weights with the highest scores. `scores` has one number per watched
  /// weight, in the order of weights(). Among equal scores the first ones are kept.
  void keep_highest(const torch::Tensor& scores, int64_t keep);

  /// Sets every pruned weight to zero.
  void apply();

  /// By parameter: true where a weight is pruned. Empty if no weight is.
  std::map<std::string, torch::Tensor> dead() const;

  /// "mask/<parameter>" -> uint8, 1 where the weight is not pruned.
  std::map<std::string, torch::Tensor> state() const;
  /// May be called before bind().
  void load_state(const std::map<std::string, torch::Tensor>& state);

 private:
  void count();

  std::vector<NamedTensor> weights_;
  std::vector<torch::Tensor> dead_;  ///< bool, in the shape of each weight
  std::map<std::string, torch::Tensor> loaded_;
  int64_t pruned_ = 0;
};

}  // namespace remcaps
