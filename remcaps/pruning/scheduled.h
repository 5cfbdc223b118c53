// Pruning to a target sparsity on a schedule: the smallest weights, or random ones as a control.
#pragma once

#include "remcaps/pruning/masks.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps {

struct ScheduledOptions {
  enum class Score { kMagnitude, kRandom };
  Score score = Score::kMagnitude;
  PruningScope scope = {};
  double sparsity = 0.9;          ///< share of the weights that is pruned in the end
  double initial_sparsity = 0.0;  ///< share at the start of the schedule
  int64_t begin = 0;              ///< epochs before the schedule starts
  int64_t end = 50;               ///< epochs until the target is reached; 0: before training
  int64_t seed = -1;              ///< of the random choice; -1: the seed of the run
};
void bind(ConfigSection& section, ScheduledOptions& options);

/// The sparsity to reach after `epochs` epochs of training (Zhu and Gupta's cubic schedule:
/// s = s_f + (s_0 - s_f) * (1 - (t - begin) / (end - begin))^3).
double scheduled_sparsity(const ScheduledOptions& options, int64_t epochs);

class ScheduledPruner : public Pruner {
 public:
  explicit ScheduledPruner(ScheduledOptions options) : options_(std::move(options)) {}

  void at_initialisation(PruningContext& context) override { prune(context, 0); }
  void before_epoch(PruningContext& context) override {
    masks_.bind(context.model, options_.scope);
  }
  void after_step(PruningContext& context) override;
  std::optional<UpdateRule> update_rule(PruningContext& context) override;
  PruningReport after_epoch(PruningContext& context) override;
  std::map<std::string, torch::Tensor> state() const override { return masks_.state(); }
  void load_state(const std::map<std::string, torch::Tensor>& state) override {
    masks_.load_state(state);
  }

 private:
  void prune(const PruningContext& context, int64_t epochs);
  torch::Tensor scores(const PruningContext& context) const;

  ScheduledOptions options_;
  Masks masks_;
};

inline std::unique_ptr<Pruner> make_pruner(ScheduledOptions options) {
  return std::make_unique<ScheduledPruner>(std::move(options));
}

}  // namespace remcaps
