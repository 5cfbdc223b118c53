// SNIP: one batch at initialisation decides what is pruned (Lee et al., ICLR 2019).
#pragma once

#include "remcaps/pruning/masks.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps {

struct SnipOptions {
  PruningScope scope = {};
  double sparsity = 0.9;  ///< share of the scope's weights that is pruned
};
void bind(ConfigSection& section, SnipOptions& options);

/// Keeps the weights with the highest connection sensitivity |w * dL/dw|, all layers together; the
/// mask is fixed from then on.
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

}  // namespace remcaps
