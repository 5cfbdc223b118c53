#include "remcaps/runtime/evidence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace remcaps::runtime {

void share_out(const RoutedCapsules& routed, const ParentEvidence& from, int64_t first,
               int64_t step, double* of_child, double& of_bias) {
  const int64_t children = routed.shape.children, dim = routed.shape.parent_dim;
  std::vector<float> votes(static_cast<size_t>(children * dim));
  for (int64_t j = 0; j < routed.shape.parents; ++j) {
    const double contribution =
        from.of_class ? 0 : from.parents[static_cast<size_t>(first + j * step)];
    if (from.of_class ? j != *from.of_class : contribution == 0) continue;
    routed.make_votes(j, votes.data());
    const float* bias = routed.bias == nullptr ? nullptr : routed.bias + j * dim;
    std::vector<double> sum(static_cast<size_t>(dim));  // s_j
    if (bias != nullptr) std::copy_n(bias, dim, sum.begin());
    const float* couplings = routed.couplings + j;
    for (int64_t i = 0; i < children; ++i)
      for (int64_t d = 0; d < dim; ++d)
        sum[static_cast<size_t>(d)] +=
            couplings[i * routed.shape.parents] * votes[static_cast<size_t>(i * dim + d)];
    const double evidence = std::sqrt(std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0));
    if (evidence == 0) continue;
    // Of each unit of the evidence.
    const double worth = from.of_class ? 1 : contribution / evidence;
    const auto along = [&](const float* x) {
      return worth * std::inner_product(sum.begin(), sum.end(), x, 0.0) / evidence;
    };
    for (int64_t i = 0; i < children; ++i)
      of_child[i] += couplings[i * routed.shape.parents] * along(votes.data() + i * dim);
    if (bias != nullptr) of_bias += along(bias);
  }
}

void dense_votes(const kernels::RoutingShape& shape, const float* weight, const float* children,
                 int64_t parent, bool longest, float* votes) {
  const int64_t dim = shape.parent_dim, child_dim = shape.child_dim;
  for (int64_t i = 0; i < shape.children; ++i, votes += dim, children += child_dim) {
    const float* row = weight + (i * shape.parents + parent) * dim * child_dim;
    for (int64_t d = 0; d < dim; ++d, row += child_dim)
      votes[d] = std::inner_product(row, row + child_dim, children, 0.0F);
    if (!longest) continue;
    const float most =
        std::sqrt(std::inner_product(children, children + child_dim, children, 0.0F));
    const float length = std::sqrt(std::inner_product(votes, votes + dim, votes, 0.0F));
    if (length > most)
      for (int64_t d = 0; d < dim; ++d) votes[d] *= most / std::max(length, 1e-12F);
  }
}

}  // namespace remcaps::runtime
