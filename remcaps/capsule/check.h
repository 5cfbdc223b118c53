// The table of all kernels and their comparisons with plain tensor code.
#pragma once

#include <vector>

#include "remcaps/ops/check.h"

namespace remcaps {

/// An entry for every kernel: the routing algorithms and op_checks().
std::vector<KernelCheck> kernel_checks();

}  // namespace remcaps
