#include "remcaps/runtime/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps::runtime {

FloatTensor Weights::read(const GraphNode& node, const std::string& role) const {
  const auto name = node.tensors.find(role);
  check(name != node.tensors.end(), "{}: {} of its graph has no {}", source(), node.name, role);
  FloatTensor tensor = reader_.read(name->second);
  check(std::all_of(tensor.values.begin(), tensor.values.end(),
                    [](float value) { return std::isfinite(value); }),
        "{}: a value of {} is not finite", source(), name->second);
  return tensor;
}

std::vector<float> Weights::read(const GraphNode& node, const std::string& role,
                                 const std::vector<int64_t>& shape) const {
  FloatTensor tensor = read(node, role);
  check(tensor.shape == shape, "{}: {} is [{}]; its graph expects [{}]", source(),
        node.tensors.at(role), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  return std::move(tensor.values);
}

std::vector<float> Weights::read_if_there(const GraphNode& node, const std::string& role,
                                          const std::vector<int64_t>& shape) const {
  return node.tensors.contains(role) ? read(node, role, shape) : std::vector<float>();
}

}  // namespace remcaps::runtime
