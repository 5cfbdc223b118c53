// REM's search: the largest magnitude threshold, one for all layers, that keeps the validation loss
// within a bound.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "remcaps/pruning/scope.h"

namespace remcaps {

/// The smallest, mean and largest |w|, from which the bisection starts.
struct MagnitudeRange {
  double low = 0, mean = 0, high = 0;
};

/// As published, it covers every parameter of the network that `searched` selects (batch norms,
/// frozen and decoder weights included) and the zeros of earlier searches.
MagnitudeRange magnitude_range(const PrunableNetwork& network);

struct SearchOptions {
  double tolerance = 0;      ///< the loss may grow to (1 + tolerance) times its first value
  double precision = 1e-10;  ///< stop when the threshold moves by less
  int64_t repeats = 10;      ///< stop when this many losses in a row equal the one before
  /// Do not evaluate the same set of weights twice. If false: the plain bisection, which gives the
  /// same result.
  bool reuse = true;
  /// If given: of the thresholds that were tried and keep the loss within the bound (0 too), the one
  /// for which this is lowest is chosen. Of equals the largest one.
  std::function<double()> prefer_low = {};
};

/// Weights that go together.
struct GroupedWeights {
  /// By parameter: the size of each weight's group, of a shape that broadcasts to the weight's. A
  /// weight goes if this size is below the threshold. Parameters that are missing stay.
  std::map<std::string, Tensor> sizes = {};
  /// If given, it is called when a threshold has been applied to the weights; 0: they are as they
  /// were.
  std::function<void(double threshold)> on_apply = {};

  /// Of the sizes.
  MagnitudeRange range() const;
};

struct SearchResult {
  double threshold = 0;             ///< 0: nothing could be pruned
  double base_loss = 0, bound = 0;  ///< the loss before the search, and the highest allowed
  double loss = 0;                  ///< with the threshold applied
  int64_t evaluations = 0;          ///< calls of `loss`
  int64_t steps = 0;                ///< thresholds tried
};

/// Bisection between range.low and range.high, starting at range.mean. Afterwards the weights below
/// the threshold found are zero. A loss that is not a number counts as above the bound. If `loss`
/// throws, all weights are as they were. If `groups` has sizes, they are compared with the threshold
/// in place of |w|.
SearchResult search_threshold(const std::vector<NamedTensor>& weights, const MagnitudeRange& range,
                              const std::function<double()>& loss, const SearchOptions& options,
                              const GroupedWeights& groups = {});

}  // namespace remcaps
