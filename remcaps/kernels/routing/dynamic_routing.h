// Dynamic routing ("routing by agreement") of a fully connected capsule layer. The votes u^_ij =
// W_ij u_i are computed again in every iteration and never stored.
//
// All arrays are dense row-major float32. Every sum has a fixed order: results repeat bit for bit
// and do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/routing/steps.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

namespace cpu {

/// Number of floats that the forward pass saves for the backward pass.
int64_t dynamic_routing_saved_floats(const RoutingShape& shape, const RoutingRule& rule);

/// Writes
///   poses      [B, J, D_out]
///   couplings  [B, I, J], of the last iteration; null: not wanted
///   saved      [dynamic_routing_saved_floats()], aligned to 64 bytes; null: no backward pass
void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved);

/// `grad_poses` is [B, J, D_out]; `saved` comes from the forward pass of the same inputs.
void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients);

}  // namespace cpu

// The loops over one group of images; see steps.h for the layout of their arrays. The votes of one
// child, J x D_out x L floats (10 KiB in DR-CapsNet), stay in the first-level cache.
namespace simd {

/// Floats of scratch memory that a call on one group needs.
int64_t dynamic_routing_scratch_floats(const RoutingShape& shape);

/// The first iteration, in which all couplings are equal: sums[j] = sum_i u^_ij, [J, D_out, L].
void sum_votes(const ChildRange& range, float* sums);

/// A later iteration: c_ij = softmax_j(u^_ij . agreed_j), rounded if there are levels, and
/// sums[j] = sum_i c_ij u^_ij. `agreed` is the sum of the parents' poses of all iterations before.
/// The logits b_ij are linear in the poses, so that they need no memory of their own.
/// `couplings` may be null.
void route_votes(const ChildRange& range, const float* agreed, const CouplingLevels& levels,
                 float* couplings, float* sums, float* scratch);

/// One iteration of the backward pass, for one group.
struct BackwardStep {
  const float* grad_sums = nullptr;  ///< dL/ds_j of this iteration
  const float* couplings = nullptr;  ///< c_ij, [I, J, L]; null: all are `uniform`
  float uniform = 0;
  /// Only for the full gradient: the sum of the earlier poses, which made these couplings.
  const float* agreed = nullptr;
  float* grad_children = nullptr;  ///< [I, D_in, L] or null
  bool accumulate = false;         ///< add to grad_children
  float* grad_agreed = nullptr;    ///< sum_i dL/db_ij u^_ij, [J, D_out, L], or null
  float* grad_logits = nullptr;    ///< dL/db_ij, [end - begin, J, L]; only if one of the two is set
};
void backward_votes(const ChildRange& range, const BackwardStep& step, float* scratch);

/// dL/dW_ij = sum over all images of (c_ij dL/ds_j + dL/db_ij agreed_j) u_i^T.
struct WeightGradientStep {
  GroupGradients from;
  const float* agreed = nullptr;       ///< null: without the second term; stride as grad_sums
  const float* grad_logits = nullptr;  ///< [end - begin, J, L]
  int64_t logits_stride = 0;
  float* grad_weight = nullptr;  ///< [I, J, D_out, D_in]
  bool accumulate = false;
};
void weight_gradient(const ChildRange& range, const WeightGradientStep& step, float* scratch);

}  // namespace simd

#ifdef REMCAPS_CUDA
// As in namespace cpu, with device pointers everywhere, those in rule.levels included.
namespace cuda {

int64_t dynamic_routing_saved_floats(const RoutingShape& shape, const RoutingRule& rule);

/// Floats of scratch memory that a pass needs. `saves`: the forward pass gets a `saved` array.
int64_t dynamic_routing_forward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                               bool saves);
int64_t dynamic_routing_backward_scratch_floats(const RoutingShape& shape, const RoutingRule& rule,
                                                const RoutingGradients& gradients);

void dynamic_routing_forward(const RoutingShape& shape, const RoutingRule& rule,
                             const float* children, const float* weight, const float* bias,
                             float* poses, float* couplings, float* saved, float* scratch,
                             cudaStream_t stream);

void dynamic_routing_backward(const RoutingShape& shape, const RoutingRule& rule,
                              const float* children, const float* weight, const float* saved,
                              const float* grad_poses, const RoutingGradients& gradients,
                              float* scratch, cudaStream_t stream);

}  // namespace cuda
#endif

}  // namespace remcaps::kernels
