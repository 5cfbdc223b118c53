// LOBSTER and the threshold search: the pruning of REM (paper, section 3.1).
#pragma once

#include <limits>

#include "remcaps/pruning/masks.h"
#include "remcaps/pruning/pruner.h"

namespace remcaps {

/// Published defaults: the search runs after every epoch and may not raise the validation loss.
struct LobsterOptions {
  PruningScope scope = {};
  double lambda = 1e-4;        ///< share of an insensitive weight that a step takes away
  double lambda_decay = 0.99;  ///< lambda of epoch e is lambda * lambda_decay^e
  /// Search once this many epochs in a row were bad; -1: after every epoch.
  int64_t pwe = -1;
  /// An epoch is bad when its validation loss exceeds the best by more than this share.
  double plateau = 0.01;
  double twt = 0;  ///< the search's bound is (1 + twt) times the loss before it
  double min_accuracy =
      0;              ///< no search while validation accuracy is not above this (affNIST: 0.5)
  int64_t begin = 0;  ///< first epoch that is followed by a search
  int64_t end = -1;   ///< no search after this epoch; -1: no end
};
void bind(ConfigSection& section, LobsterOptions& options);

/// One shrinking step of the regulariser: p <- p - lambda * p * max(0, 1 - |dL/dp|). The less the
/// loss depends on a parameter, the faster it decays. Independent of the learning rate.
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
  void bind_to(const CapsNet& model);
  double lambda_at(int64_t epoch) const;
  bool search_is_due(const PruningContext& context);

  LobsterOptions options_;
  Masks masks_;
  std::vector<NamedTensor> shrunk_;  ///< every trained parameter of the layers, biases included
  /// Lowest validation loss since the last search, and the bad epochs in a row since then.
  double best_loss_ = std::numeric_limits<double>::infinity();
  int64_t bad_epochs_ = 0;
};

}  // namespace remcaps
