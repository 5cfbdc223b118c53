// REM's search: the largest global magnitude threshold that the validation loss does not notice.
#pragma once

#include <functional>
#include <vector>

#include "remcaps/pruning/scope.h"

namespace remcaps {

/// Smallest, mean and largest |w| the bisection starts from.
struct MagnitudeRange {
  double low = 0, mean = 0, high = 0;
};

/// Published: taken over every parameter of the network whose name contains "weight" (batch norms,
/// frozen and decoder weights included), the zeros of earlier prunings included.
MagnitudeRange magnitude_range(const CapsNet& model);

struct SearchOptions {
  double twt = 0;            ///< the loss may grow to (1 + twt) times its base
  double precision = 1e-10;  ///< stop when the threshold moves by less
  int64_t repeats = 10;      ///< stop when the loss has repeated itself this often in a row
  /// Look a threshold's loss up where the same set of weights was evaluated before. Off: the plain
  /// bisection, which gives the same result.
  bool reuse = true;
};

struct SearchResult {
  double threshold = 0;  ///< 0: nothing could be pruned
  double base_loss = 0, bound = 0;
  double loss = 0;          ///< with the threshold applied
  int64_t evaluations = 0;  ///< validation passes, the base included
  int64_t steps = 0;        ///< thresholds tried
};

/// Bisection between range.low and range.high from range.mean on. Leaves the weights with the found
/// threshold applied (|w| < threshold is zero). A loss that is not a number counts as above the
/// bound.
SearchResult search_threshold(const std::vector<NamedTensor>& weights, const MagnitudeRange& range,
                              const std::function<double()>& loss, const SearchOptions& options);

}  // namespace remcaps
