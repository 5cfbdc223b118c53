// LOBSTER and the threshold search: the pruning of REM (paper, section 3.1).
#pragma once

#include <limits>

#include "remcaps/pruning/masks.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps {

/// The defaults are the published values: the search runs after every epoch and may not raise the
/// validation loss.
struct LobsterOptions {
  PruningScope scope = {};
  double lambda = 1e-4;        ///< a step takes this share of a weight that the loss ignores
  double lambda_decay = 0.99;  ///< lambda of epoch e is lambda * lambda_decay^e
  /// Search after this many bad epochs in a row; -1: after every epoch. (PWE in the paper.)
  int64_t patience_epochs = -1;
  /// An epoch is bad if its validation loss exceeds the best one by more than this share.
  double plateau = 0.01;
  /// The search may raise the validation loss by this share. (TWT in the paper.)
  double tolerance = 0;
  /// No search while validation accuracy is not above this.
  double min_accuracy = 0;
  /// No search until validation accuracy has come this share of the way from chance to 1. Chance is
  /// the accuracy of always naming the most frequent class. 0: do not wait.
  double above_chance = 0;
  int64_t begin = 0;  ///< first epoch that is followed by a search
  int64_t end = -1;   ///< last epoch that is followed by a search; -1: no end
};
void bind(ConfigSection& section, LobsterOptions& options);

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
  /// Counts the epoch in `plateau`.
  bool search_is_due(const PruningContext& context, Plateau& plateau) const;

  LobsterOptions options_;
  Masks masks_;
  std::vector<NamedTensor> shrunk_;  ///< all trained parameters of the layers, biases included
  Plateau plateau_;
};

inline std::unique_ptr<Pruner> make_pruner(LobsterOptions options) {
  return std::make_unique<LobsterPruner>(std::move(options));
}

}  // namespace remcaps
