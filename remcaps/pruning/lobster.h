// Options of LOBSTER and its threshold search: the pruning of REM (paper, section 3.1).
#pragma once

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
  /// Search only if validation accuracy is above this.
  double min_accuracy = 0;
  /// Search only after validation accuracy has come this share of the way from chance to 1. Chance
  /// is the accuracy of always naming the most frequent class. 0: do not wait.
  double above_chance = 0;
  /// Weights that go together too (groups.h): they are shrunk and searched as groups and as single
  /// weights.
  std::vector<std::string> groups = {};
  /// Which of the thresholds that the tolerance allows is taken.
  enum class Choose {
    kThreshold,  ///< the largest
    kEntropy,    ///< the one with the lowest entropy of the parse trees of the validation images
    kParts,      ///< the one with the fewest effective parts of the answers for them
  };
  Choose choose = Choose::kThreshold;
  int64_t begin = 0;  ///< first epoch that is followed by a search
  int64_t end = -1;   ///< last epoch that is followed by a search; -1: no end
};
void bind(ConfigSection& section, LobsterOptions& options);

std::unique_ptr<Pruner> make_pruner(LobsterOptions options);

}  // namespace remcaps
