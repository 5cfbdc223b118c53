// Fused dynamic routing on CUDA: votes are recomputed where they are needed and never stored. All
// pointers are device pointers to dense row-major float32. Every sum has a fixed order, so results
// repeat bit for bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cuda {

/// Floats the forward pass leaves behind for the backward pass.
int64_t saved_floats(const RoutingShape& shape, const RoutingRule& rule);

/// Floats of scratch memory either pass needs beside it.
int64_t forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule, bool saves);
int64_t backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                const RoutingGradients& gradients);

/// poses [B, J, D_out]; couplings of the last iteration [B, I, J] or null; saved [saved_floats] or
/// null where no gradient will be asked for. Tables in rule.levels are device pointers too.
void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream);

/// grad_poses [B, J, D_out]; `saved` as the forward pass of the same inputs left it.
void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
