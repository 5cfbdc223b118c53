// Fused scaled-distance routing on the CPU, with the gradient of the last iteration. Conventions
// and arguments are those of dynamic_routing_cpu.h.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing_problem.h"

namespace remcaps::kernels::cpu {

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule);

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved);

/// All iterations before the last are constants to the gradient; `gradients.full` is to be false.
void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients);

}  // namespace remcaps::kernels::cpu
