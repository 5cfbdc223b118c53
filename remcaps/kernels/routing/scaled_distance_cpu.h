// Fused scaled-distance routing on the CPU. Conventions and arguments are those of
// dynamic_routing_cpu.h.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule);

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved);

/// Votes are made once for children and weights, and in the full gradient once more for each
/// iteration after the first.
void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients);

}  // namespace remcaps::kernels::cpu
