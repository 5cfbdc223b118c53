// Fused dynamic routing on the CPU: votes are recomputed in every iteration and never stored.
// All pointers are to dense row-major float32.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

/// Floats the forward pass leaves behind for the backward pass (sums and couplings per iteration).
int64_t saved_floats(const RoutingShape& shape, const RoutingRule& rule);

/// poses [B, J, D_out]; couplings of the last iteration [B, I, J] or null; saved
/// [saved_floats], 64-byte aligned, or null where no gradient will be asked for.
void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved);

/// grad_poses [B, J, D_out]; `saved` as the forward pass of the same inputs left it.
void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients);

}  // namespace remcaps::kernels::cpu
