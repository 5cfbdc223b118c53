#include "remcaps/explain/statistics.h"

#include "remcaps/base/error.h"
#include "remcaps/ops/quantize.h"

namespace remcaps {

namespace {

// Rows of level indices counted by group, int64 [groups, levels].
Tensor count_levels(const Tensor& indices, const Tensor& group, int64_t groups, int64_t levels) {
  const Tensor cell = (group.unsqueeze(1) * levels + indices.to(torch::kLong)).flatten();
  return torch::bincount(cell, {}, groups * levels).view({groups, levels});
}

}  // namespace

void CouplingStatistics::add(const Forward& forward) {
  const torch::NoGradGuard no_grad;
  check(!forward.routings.empty(), "coupling statistics need a forward pass with traces");
  const Tensor classes = predicted_classes(forward);
  const Tensor column =
      coupling_to_class(forward.routings, forward.routings.size() - 1, classes);  // [B, I]
  const int64_t class_count = forward.activations.size(1);
  if (!sum_.defined()) {
    sum_ = torch::zeros({class_count, column.size(1)}, column.options().dtype(torch::kDouble));
    count_ = torch::zeros({class_count}, classes.options());
    levels_ = torch::zeros({class_count, quantizer_.levels()}, classes.options());
  }
  sum_.index_add_(0, classes, column.to(torch::kDouble));
  count_.index_add_(0, classes, torch::ones_like(classes));
  levels_ +=
      count_levels(level_indices(column, quantizer_), classes, class_count, quantizer_.levels());
}

Tensor CouplingStatistics::mean_couplings() const {
  check(sum_.defined(), "coupling statistics of no images");
  return (sum_ / count_.unsqueeze(1)).cpu();
}

Tensor CouplingStatistics::histogram_of_means() const {
  const Tensor means = mean_couplings().to(torch::kFloat);
  const Tensor classes = torch::arange(means.size(0));
  const Tensor seen = count_.cpu().gt(0).to(torch::kLong).unsqueeze(1);
  return count_levels(level_indices(means.nan_to_num(0), quantizer_), classes, means.size(0),
                      quantizer_.levels()) *
         seen;
}

Tensor CouplingStatistics::histogram() const {
  check(levels_.defined(), "coupling statistics of no images");
  return levels_.cpu();
}

void TreeGroups::add(const Forward& forward, const Tensor& indices) {
  check(!forward.routings.empty(), "parse trees need a forward pass with traces");
  const Tensor classes = predicted_classes(forward);
  const Tensor column = coupling_to_class(forward.routings, forward.routings.size() - 1, classes);
  const Tensor keys = encode_keys(column, quantizer_).cpu().contiguous();
  const Tensor class_of = classes.cpu().contiguous(), place = indices.cpu().contiguous();
  const char* bytes = reinterpret_cast<const char*>(keys.data_ptr<uint8_t>());
  const size_t length = static_cast<size_t>(keys.size(1));
  for (int64_t b = 0; b < keys.size(0); ++b) {
    const KeyHash hash = hash_key({bytes + static_cast<size_t>(b) * length, length});
    groups_.at(static_cast<size_t>(class_of.data_ptr<int64_t>()[b]))[hash].push_back(
        place.data_ptr<int64_t>()[b]);
  }
}

int64_t TreeGroups::trees(int64_t class_index) const {
  return static_cast<int64_t>(groups_.at(static_cast<size_t>(class_index)).size());
}

std::vector<std::vector<int64_t>> TreeGroups::largest(int64_t class_index, size_t limit) const {
  std::vector<std::vector<int64_t>> groups;
  for (const auto& [hash, images] : groups_.at(static_cast<size_t>(class_index)))
    groups.push_back(images);
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  if (groups.size() > limit) groups.resize(limit);
  return groups;
}

}  // namespace remcaps
