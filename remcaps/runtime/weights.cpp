#include "remcaps/runtime/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps::runtime {

const std::string& Weights::name_of(const GraphNode& node, const std::string& role) const {
  const auto name = node.tensors.find(role);
  check(name != node.tensors.end(), "{}: {} of its graph has no {}", source(), node.name, role);
  return name->second;
}

void Weights::check_finite(const std::vector<float>& values, const std::string& name) const {
  check(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
        "{}: a value of {} is not finite", source(), name);
}

FloatTensor Weights::read(const GraphNode& node, const std::string& role) const {
  const std::string& name = name_of(node, role);
  FloatTensor tensor = reader_.read(name);
  check_finite(tensor.values, name);
  return tensor;
}

std::optional<SparseTensor> Weights::read_sparse(const GraphNode& node, const std::string& role,
                                                 double most) const {
  const std::string& name = name_of(node, role);
  std::optional<SparseTensor> tensor = reader_.read_sparse(name);
  if (!tensor) return tensor;
  double count = 1;
  for (const int64_t size : tensor->shape) count *= static_cast<double>(size);
  if (static_cast<double>(tensor->values.size()) > most * count) return std::nullopt;
  check_finite(tensor->values, name);
  return tensor;
}

std::optional<ByteTensor> Weights::read_bytes(const GraphNode& node,
                                              const std::string& role) const {
  const std::string& name = name_of(node, role);
  std::optional<ByteTensor> tensor = reader_.read_bytes(name);
  if (tensor) check_finite(tensor->scales, name);
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
