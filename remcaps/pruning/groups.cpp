#include "remcaps/pruning/groups.h"

#include <charconv>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

GroupSizes group_sizes(const std::vector<std::string>& groups,
                       const std::vector<NamedTensor>& weights) {
  GroupSizes sizes;
  std::vector<std::string> names;
  for (const NamedTensor& weight : weights) names.push_back(weight.name);
  for (const std::string& group : groups) {
    const size_t slash = group.find('/');
    const std::string pattern = group.substr(0, slash);
    int64_t size = 1;
    if (slash != std::string::npos) {
      const char *begin = group.data() + slash + 1, *end = group.data() + group.size();
      const auto [parsed, error] = std::from_chars(begin, end, size);
      if (error != std::errc() || parsed != end || size < 1)
        throw UsageError("pruning.groups: " + group + "; expected a name, or a name and /N");
    }
    bool found = false;
    for (const NamedTensor& weight : weights) {
      if (!selects(pattern, weight.name)) continue;
      found = true;
      if (weight.tensor.size(0) % size != 0)
        throw UsageError(
            fmt::format("pruning.groups: {}: the {} slices of {} are no multiple of {}", group,
                        weight.tensor.size(0), weight.name, size));
      sizes[weight.name] = size;
    }
    if (!found)
      throw UsageError(fmt::format("pruning.groups: no pruned weight matches {}{}", pattern,
                                   suggestion(pattern, names)));
  }
  return sizes;
}

torch::Tensor group_norms(const torch::Tensor& tensor, int64_t group_size) {
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[0] = tensor.size(0);
  return tensor.square()
      .reshape({tensor.size(0), -1})
      .sum(1)
      .view({-1, group_size})
      .sum(1, /*keepdim=*/true)
      .sqrt()
      .expand({-1, group_size})
      .reshape(shape);
}

}  // namespace remcaps
