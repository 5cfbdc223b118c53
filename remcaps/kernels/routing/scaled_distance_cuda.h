// Fused scaled-distance routing on CUDA: votes are recomputed where they are needed and never
// stored. Conventions and arguments are those of dynamic_routing_cuda.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cuda {

/// Whether the pose sizes have kernels.
bool has_scaled_distance_kernels(int64_t child_dim, int64_t parent_dim);

int64_t scaled_distance_saved_floats(const RoutingShape& shape, const RoutingRule& rule);
int64_t scaled_distance_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves);
int64_t scaled_distance_backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                                const RoutingGradients& gradients);

void scaled_distance_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream);

/// Votes are made once for children and weights, and in the full gradient twice more for each
/// iteration after the first.
void scaled_distance_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
