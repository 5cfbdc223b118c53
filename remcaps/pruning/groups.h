// Groups of weights that are pruned together.
//
// A group is one or more slices of a parameter along its first dimension. A slice of a convolution
// [filters, channels, k, k] is a filter; D of them are a primary capsule type of D numbers. A slice
// of a capsule layer's W [I, J, Dout, Din] is a child capsule.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "remcaps/pruning/scope.h"

namespace remcaps {

/// Slices per group, by the name of the parameter.
using GroupSizes = std::map<std::string, int64_t>;

/// Reads "PATTERN" (one slice is a group) and "PATTERN/N" (N slices are one). Error if a pattern
/// selects none of the weights, or if its groups do not fit.
GroupSizes group_sizes(const std::vector<std::string>& groups,
                       const std::vector<NamedTensor>& weights);

/// The norm of the group that each slice belongs to: [slices, 1, ..., 1].
torch::Tensor group_norms(const torch::Tensor& tensor, int64_t group_size);

}  // namespace remcaps
