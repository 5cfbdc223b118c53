// How LOBSTER works: the regulariser after each step, the threshold search after an epoch.
#pragma once

#include <limits>

#include "remcaps/pruning/groups.h"
#include "remcaps/pruning/lobster.h"
#include "remcaps/pruning/masks.h"

namespace remcaps {

/// One step of the regulariser: p <- p - lambda * p * max(0, 1 - |dL/dp|). The less the loss
/// depends on a parameter, the faster the parameter decays. The learning rate plays no role.
void lobster_shrink(torch::Tensor parameter, const torch::Tensor& gradient, double lambda);

class LobsterPruner : public Pruner {
 public:
  explicit LobsterPruner(LobsterOptions options) : options_(std::move(options)) {}

  void before_epoch(PruningContext& context) override;
  void after_backward(PruningContext& context) override;
  void after_step(PruningContext& context) override;
  std::optional<UpdateRule> update_rule(PruningContext& context) override;
  PruningReport after_epoch(PruningContext& context) override;
  std::map<std::string, torch::Tensor> state() const override;
  void load_state(const std::map<std::string, torch::Tensor>& state) override;

 private:
  /// Since the last search.
  struct Plateau {
    double best_loss = std::numeric_limits<double>::infinity();  ///< lowest validation loss
    int64_t bad_epochs = 0;                                      ///< in a row
  };

  void bind_to(const PrunableNetwork& network);
  double lambda_at(int64_t epoch) const;
  SearchResult search(PruningContext& context);
  /// Counts the epoch in `plateau`.
  bool search_is_due(const PruningContext& context, Plateau& plateau) const;

  LobsterOptions options_;
  Masks masks_;
  std::optional<WeightGroups> groups_;
  std::vector<NamedTensor> shrunk_;  ///< all trained parameters of the layers, biases included
  Plateau plateau_;
};

}  // namespace remcaps
