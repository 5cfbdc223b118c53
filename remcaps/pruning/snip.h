// SNIP: prunes once, before training, by the gradients of one batch (Lee et al., ICLR 2019).
#pragma once

#include "remcaps/pruning/masks.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps {

struct SnipOptions {
  PruningScope scope = {};
  double sparsity = 0.9;  ///< share of the weights that is pruned
};
void bind(ConfigSection& section, SnipOptions& options);

/// Keeps the weights with the highest connection sensitivity |w * dL/dw|, ranked over all layers
/// together. The mask does not change afterwards.
class SnipPruner : public Pruner {
 public:
  explicit SnipPruner(SnipOptions options) : options_(std::move(options)) {}

  void at_initialisation(PruningContext& context) override;
  void before_epoch(PruningContext& context) override {
    masks_.bind(context.model, options_.scope);
  }
  void after_step(PruningContext& context) override;
  std::optional<UpdateRule> update_rule(PruningContext& context) override;
  std::map<std::string, torch::Tensor> state() const override { return masks_.state(); }
  void load_state(const std::map<std::string, torch::Tensor>& state) override {
    masks_.load_state(state);
  }

 private:
  SnipOptions options_;
  Masks masks_;
};

inline std::unique_ptr<Pruner> make_pruner(SnipOptions options) {
  return std::make_unique<SnipPruner>(std::move(options));
}

}  // namespace remcaps
