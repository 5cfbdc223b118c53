#include "remcaps/pruning/threshold_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

// The weights before the search. Applies thresholds to the weights of the network.
class Candidate {
 public:
  explicit Candidate(const std::vector<NamedTensor>& weights) : weights_(weights) {
    for (const NamedTensor& weight : weights) original_.push_back(weight.tensor.detach().clone());
    if (std::all_of(original_.begin(), original_.end(), [](const Tensor& weight) {
          return weight.is_cuda() && weight.scalar_type() == torch::kFloat32;
        }))
      sort_magnitudes();
  }

  // How many weights are zero once |w| < threshold is pruned. A larger threshold only adds zeros:
  // equal counts mean equal sets.
  int64_t zeros(double threshold) const {
    if (sorted_.defined()) {
      // The device compares in float32 too.
      return std::max(below(static_cast<float>(threshold)), below(least_above_zero()));
    }
    std::vector<Tensor> counts;
    for (const Tensor& weight : original_)
      counts.push_back((weight.abs() < threshold).logical_or_(weight == 0).sum());
    return torch::stack(counts).sum().item<int64_t>();
  }

  // apply(0) restores the weights.
  void apply(double threshold) const {
    for (size_t k = 0; k < original_.size(); ++k) {
      Tensor target = weights_[k].tensor;
      target.copy_(original_[k]);
      target.masked_fill_(original_[k].abs() < threshold, 0);
    }
  }

 private:
  // Counting on a GPU would wait for the device at every step of the search. Instead the sorted
  // magnitudes are copied to the host once.
  void sort_magnitudes() {
    std::vector<Tensor> magnitudes;
    for (const Tensor& weight : original_) magnitudes.push_back(weight.abs().flatten());
    if (magnitudes.empty()) return;
    const Tensor sorted = std::get<0>(torch::cat(magnitudes).sort());
    sorted_ =
        torch::empty(sorted.sizes(), sorted.options().device(torch::kCPU).pinned_memory(true));
    sorted_.copy_(sorted);
  }

  // The number of magnitudes below this one.
  int64_t below(float magnitude) const {
    const float* first = sorted_.data_ptr<float>();
    return std::lower_bound(first, first + sorted_.numel(), magnitude) - first;
  }
  static float least_above_zero() { return std::numeric_limits<float>::denorm_min(); }

  const std::vector<NamedTensor>& weights_;
  std::vector<Tensor> original_;
  Tensor sorted_;  // float32 in page-locked memory; undefined if the weights are not on a GPU
};

SearchResult bisect(const Candidate& candidate, const MagnitudeRange& range,
                    const std::function<double()>& loss, const SearchOptions& options) {
  SearchResult result;
  result.base_loss = result.loss = loss();
  result.bound = result.base_loss * (1 + options.tolerance);
  result.evaluations = 1;

  std::map<int64_t, double> known;  // zeros -> loss
  if (options.reuse) known[candidate.zeros(0)] = result.base_loss;
  const auto loss_at = [&](double threshold) {
    const int64_t zeros = options.reuse ? candidate.zeros(threshold) : 0;
    if (const auto found = known.find(zeros); found != known.end()) return found->second;
    candidate.apply(threshold);
    ++result.evaluations;
    const double value = loss();
    if (options.reuse) known[zeros] = value;
    return value;
  };

  double low = range.low, high = range.high, threshold = range.mean;
  double previous = std::nan("");
  for (int64_t repeats = 0;;) {
    ++result.steps;
    const double value = loss_at(threshold);
    const double tried = threshold;
    if (value <= result.bound) {
      result.threshold = tried;
      result.loss = value;
      low = tried;
      threshold = (high + tried) / 2;
    } else {  // above the bound, or not a number
      high = tried;
      threshold = (low + tried) / 2;
    }
    repeats = value == previous ? repeats + 1 : 0;
    previous = value;
    if (std::abs(threshold - tried) < options.precision || repeats >= options.repeats) break;
  }
  return result;
}

}  // namespace

MagnitudeRange magnitude_range(const PrunableNetwork& network) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> lows, sums, highs;
  int64_t count = 0;
  for (const auto& [name, parameter] : network.parameters) {
    const bool searched =
        std::any_of(network.searched.begin(), network.searched.end(),
                    [&, &name = name](const auto& pattern) { return selects(pattern, name); });
    if (!searched || parameter.numel() == 0) continue;
    const Tensor magnitude = parameter.abs();
    lows.push_back(magnitude.min());
    sums.push_back(magnitude.sum(torch::kDouble));
    highs.push_back(magnitude.max());
    count += magnitude.numel();
  }
  check(count > 0, "pruning: no parameter of {} has \"weight\" in its name", network.name);
  const Tensor all = torch::stack({torch::stack(lows).min().to(torch::kDouble),
                                   torch::stack(sums).sum() / static_cast<double>(count),
                                   torch::stack(highs).max().to(torch::kDouble)})
                         .cpu();
  const double* values = all.data_ptr<double>();
  return {values[0], values[1], values[2]};
}

SearchResult search_threshold(const std::vector<NamedTensor>& weights, const MagnitudeRange& range,
                              const std::function<double()>& loss, const SearchOptions& options) {
  const torch::NoGradGuard no_grad;
  const Candidate candidate(weights);
  try {
    const SearchResult result = bisect(candidate, range, loss, options);
    candidate.apply(result.threshold);
    return result;
  } catch (...) {
    candidate.apply(0);
    throw;
  }
}

}  // namespace remcaps
