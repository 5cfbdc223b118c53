#include "remcaps/runtime/matrices.h"

namespace remcaps::runtime {

using kernels::CouplingLevels;
using kernels::RoutingRule;

Matrices read_matrices(const NodeReader& reader, int64_t children, int64_t dim, double sparse) {
  Matrices matrices;
  const int64_t shared = reader.integer("shared_over", 1, 1 << 24, 1);
  if (shared == 1 && sparse > 0)
    matrices.left = reader.weights().read_sparse(reader.node(), "weight", sparse);
  FloatTensor weight;
  if (!matrices.left) weight = reader.weights().read(reader.node(), "weight");
  const std::vector<int64_t>& sizes = matrices.left ? matrices.left->shape : weight.shape;
  reader.require(sizes.size() == 4 && sizes[0] * shared == children && sizes[3] == dim &&
                     sizes[1] >= 1 && sizes[2] >= 1,
                 "its matrices do not fit the children");
  matrices.shape = {
      .children = children, .parents = sizes[1], .child_dim = dim, .parent_dim = sizes[2]};
  const int64_t size = matrices.shape.pose_size() * dim;
  reader.checked(ValueShape::capsules(children, size));
  if (matrices.left) return matrices;
  if (shared == 1) {
    matrices.weight = std::move(weight.values);
    return matrices;
  }
  matrices.weight.reserve(static_cast<size_t>(children * size));
  for (int64_t i = 0; i < children; ++i) {
    const auto from = weight.values.begin() + i / shared * size;
    matrices.weight.insert(matrices.weight.end(), from, from + size);
  }
  return matrices;
}

void read_bias(const NodeReader& reader, Matrices& matrices) {
  matrices.bias = reader.weights().read_if_there(
      reader.node(), "bias", {matrices.shape.parents, matrices.shape.parent_dim});
}

RoutingRule read_rule(const NodeReader& reader, kernels::Agreement agreement) {
  return {.agreement = agreement,
          .iterations = reader.integer("iterations", 1, kMaxIterations),
          .epsilon = reader.real("epsilon", 0, 1),
          .bias_every_iteration = reader.integer("bias_every_iteration", 0, 1) == 1,
          .levels = {}};
}

RoutingRule with_levels(RoutingRule rule, const CouplingLevels& levels, int64_t parents) {
  rule.levels = levels;
  rule.first_coupling = 1.0F / static_cast<float>(parents);
  if (rule.iterations == 1 && levels.count > 0)
    rule.first_coupling = kernels::rounded(levels, rule.first_coupling);
  return rule;
}

}  // namespace remcaps::runtime
