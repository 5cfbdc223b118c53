// Masks: a pruned weight is exactly zero for ever, whatever the optimiser does to it.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "remcaps/pruning/scope.h"

namespace remcaps {

class Masks {
 public:
  /// Chooses the weights to watch. Calling it again for the same network changes nothing.
  void bind(const CapsNet& model, const PruningScope& scope);
  bool bound() const { return !weights_.empty(); }

  const std::vector<NamedTensor>& weights() const { return weights_; }
  int64_t total() const;  ///< weights watched
  int64_t pruned() const { return pruned_; }

  /// Weights that are exactly zero now are pruned from here on (published: taken at the start of
  /// every epoch and after every search).
  void prune_zeros();

  /// Prunes all but the `keep` weights with the highest scores. `scores` is one number per watched
  /// weight, concatenated in the order of weights(); equal scores are taken first come, first kept.
  void keep_highest(const torch::Tensor& scores, int64_t keep);

  /// Sets every pruned weight to zero.
  void apply();

  /// Where weights are pruned, by parameter; empty as long as none is.
  std::map<std::string, torch::Tensor> dead() const;

  /// "mask/<parameter>" -> uint8, 1 where the weight lives.
  std::map<std::string, torch::Tensor> state() const;
  /// May come before bind().
  void load_state(const std::map<std::string, torch::Tensor>& state);

 private:
  void count();

  std::vector<NamedTensor> weights_;
  std::vector<torch::Tensor> dead_;  ///< bool, like each weight: true where it is pruned
  std::map<std::string, torch::Tensor> loaded_;
  int64_t pruned_ = 0;
};

}  // namespace remcaps
