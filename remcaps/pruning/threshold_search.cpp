#include "remcaps/pruning/threshold_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

// The weights before the search. Applies thresholds to the weights of the network.
class Candidate {
 public:
  Candidate(const std::vector<NamedTensor>& weights, const GroupedWeights& groups)
      : on_apply_(groups.on_apply) {
    for (const auto& [name, tensor] : weights) {
      const auto group = groups.sizes.find(name);
      if (group == groups.sizes.end() && !groups.sizes.empty()) continue;
      weights_.push_back(tensor);
      originals_.push_back(tensor.detach().clone());
      sizes_.push_back(groups.sizes.empty() ? originals_.back().abs()
                                            : group->second.expand_as(tensor));
    }
    if (std::all_of(sizes_.begin(), sizes_.end(), [](const Tensor& size) {
          return size.is_cuda() && size.scalar_type() == torch::kFloat32;
        }))
      sort_sizes();
  }

  // How many weights are zero once those whose size is below the threshold are pruned. A larger
  // threshold only adds zeros: equal counts mean equal sets.
  int64_t zeros(double threshold) const {
    // The device compares in float32 too.
    if (sorted_.defined()) return std::max(below(static_cast<float>(threshold)), zeros_);
    std::vector<Tensor> counts;
    for (size_t k = 0; k < sizes_.size(); ++k)
      counts.push_back((sizes_[k] < threshold).logical_or_(originals_[k] == 0).sum());
    return torch::stack(counts).sum().item<int64_t>();
  }

  // apply(0) restores the weights.
  void apply(double threshold) const {
    for (size_t k = 0; k < originals_.size(); ++k) {
      Tensor target = weights_[k];
      target.copy_(originals_[k]);
      target.masked_fill_(sizes_[k] < threshold, 0);
    }
    if (on_apply_) on_apply_(threshold);
  }

 private:
  // Counting on a GPU would wait for the device at every step of the search. Instead the sorted
  // sizes are copied to the host once.
  void sort_sizes() {
    std::vector<Tensor> sizes, zeros;
    for (size_t k = 0; k < sizes_.size(); ++k) {
      sizes.push_back(sizes_[k].reshape({-1}));
      zeros.push_back((originals_[k] == 0).sum());
    }
    if (sizes.empty()) return;
    const Tensor sorted = std::get<0>(torch::cat(sizes).sort());
    sorted_ =
        torch::empty(sorted.sizes(), sorted.options().device(torch::kCPU).pinned_memory(true));
    sorted_.copy_(sorted);
    zeros_ = torch::stack(zeros).sum().item<int64_t>();
  }

  // The number of sizes below this one.
  int64_t below(float size) const {
    const float* first = sorted_.data_ptr<float>();
    return std::lower_bound(first, first + sorted_.numel(), size) - first;
  }

  const std::function<void(double)>& on_apply_;
  std::vector<Tensor> weights_, originals_;
  std::vector<Tensor> sizes_;  // |w|, or the size of the weight's group
  Tensor sorted_;      // float32 in page-locked memory; undefined if the weights are not on a GPU
  int64_t zeros_ = 0;  // before the search, if sorted_ is defined
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

  std::vector<std::pair<double, double>> allowed = {{0, result.base_loss}};  // threshold, loss
  double low = range.low, high = range.high, threshold = range.mean;
  double previous = std::nan("");
  for (int64_t repeats = 0;;) {
    ++result.steps;
    const double value = loss_at(threshold);
    const double tried = threshold;
    if (value <= result.bound) {
      allowed.emplace_back(tried, value);
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
  std::tie(result.threshold, result.loss) = allowed.back();
  if (options.prefer_low) {
    double lowest = std::numeric_limits<double>::infinity();
    int64_t seen = -1;
    for (auto each = allowed.rbegin(); each != allowed.rend(); ++each) {
      const int64_t zeros = candidate.zeros(each->first);
      if (std::exchange(seen, zeros) == zeros) continue;
      candidate.apply(each->first);
      ++result.evaluations;
      const double value = options.prefer_low();
      if (!(value < lowest)) continue;
      lowest = value;
      std::tie(result.threshold, result.loss) = *each;
    }
  }
  return result;
}

// One read-back.
MagnitudeRange to_range(const std::vector<Tensor>& lows, const std::vector<Tensor>& sums,
                        const std::vector<Tensor>& highs, int64_t count) {
  const Tensor all = torch::stack({torch::stack(lows).min().to(torch::kDouble),
                                   torch::stack(sums).sum() / static_cast<double>(count),
                                   torch::stack(highs).max().to(torch::kDouble)})
                         .cpu();
  const double* values = all.data_ptr<double>();
  return {values[0], values[1], values[2]};
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
  return to_range(lows, sums, highs, count);
}

MagnitudeRange GroupedWeights::range() const {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> lows, sums, highs;
  int64_t count = 0;
  for (const auto& [name, size] : sizes) {
    lows.push_back(size.min());
    sums.push_back(size.sum(torch::kDouble));
    highs.push_back(size.max());
    count += size.numel();
  }
  check(count > 0, "pruning: there are no groups");
  return to_range(lows, sums, highs, count);
}

SearchResult search_threshold(const std::vector<NamedTensor>& weights, const MagnitudeRange& range,
                              const std::function<double()>& loss, const SearchOptions& options,
                              const GroupedWeights& groups) {
  const torch::NoGradGuard no_grad;
  const Candidate candidate(weights, groups);
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
