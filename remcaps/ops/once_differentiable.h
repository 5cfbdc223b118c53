// Operations whose gradient has no gradient itself.
#pragma once

#include <torch/types.h>

#include "remcaps/base/error.h"

namespace remcaps {

/// To be called first in a backward pass that autograd cannot see into. With create_graph=true its
/// result would count as a constant, without a word.
inline void check_once_differentiable(const char* operation) {
  check(!torch::GradMode::is_enabled(),
        "{}: the fused kernels have no second derivative; expected create_graph=False or the "
        "reference kernels",
        operation);
}

}  // namespace remcaps
