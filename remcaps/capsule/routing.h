// Routing: how child capsules divide themselves over parent capsules.
//
// Every algorithm is one function of the children's poses and the transformation matrices, written
// as plain tensor code in routing.cpp and conv_routing.cpp. Symbols and shapes, the same
// throughout:
//   B images, I children of Din numbers each, J parents of Dout numbers each
//   children  [B, I, Din]        u_i
//   weight    [I, J, Dout, Din]  W_ij
//   votes     [B, I, J, Dout]    û_ij = W_ij u_i, what child i predicts for parent j
//   logits    [B, I, J]          b_ij, zero at the start
//   coupling  [B, I, J]          c_ij, softmax of the logits over the PARENTS j: each child splits
//   itself poses     [B, J, Dout]       v_j
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "remcaps/capsule/quantizer.h"
#include "remcaps/ops/kernel_path.h"
#include "remcaps/ops/squash.h"

namespace remcaps {

class PackedMatrices;

/// What the gradient of the loss sees of the routing iterations.
enum class RoutingGradient {
  kLast,  ///< published code: votes are constants except in the last weighted sum
  kFull,  ///< paper's appendix: both terms, through the couplings of every iteration too
};

/// In which iterations a parent's bias is added to its pre-activation.
enum class BiasUse { kNone, kEvery, kLast };

/// Routing by agreement (Sabour et al.).
struct DynamicRouting {
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  BiasUse bias = BiasUse::kEvery;
  Squash squash = {};
  KernelPath kernels = KernelPath::kFused;
};

/// Routing by scaled distance agreement (gamma-CapsNet). Its published gradient is stricter than
/// dynamic routing's: all but the last iteration is a constant, for the bias too.
struct ScaledDistanceRouting {
  /// Over what the mean distance d_o is taken.
  enum class Mean {
    kBatch,   ///< published: one number per batch, so that images of a batch see each other
    kSample,  ///< one per image: a prediction does not depend on its neighbours
  };
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  BiasUse bias = BiasUse::kEvery;
  Mean mean = Mean::kBatch;
  Squash squash = {};
  KernelPath kernels = KernelPath::kFused;
};

/// Self-attention routing (Efficient-CapsNet): no iterations, a learned prior [I, J] is added to
/// the couplings after the softmax.
struct SelfAttentionRouting {
  Squash squash = {Squash::Form::kExponential, 1e-7};
  KernelPath kernels = KernelPath::kFused;
};

using RoutingOptions = std::variant<DynamicRouting, ScaledDistanceRouting, SelfAttentionRouting>;

/// "dynamic", "scaled-distance" or "self-attention".
std::string routing_name(const RoutingOptions& options);
/// 1 for self-attention.
int64_t routing_iterations(const RoutingOptions& options);
/// Whether the algorithm takes a bias [J, Dout] (one of those whose `bias` is not kNone).
bool routing_has_bias(const RoutingOptions& options);

/// What a caller wants of one pass through a routing layer.
struct RoutingRequest {
  /// Applied to the couplings of the last iteration, before the weighted sum; not renormalised.
  std::optional<Quantizer> quantizer = std::nullopt;
  /// RoutingResult::coupling is wanted. The plain code always has it; a fused kernel need not.
  bool coupling = true;
};

struct RoutingResult {
  Tensor poses;     ///< v_j, [B, J, Dout]
  Tensor coupling;  ///< of the last iteration, quantized where asked for; [B, I, J]
  /// How many couplings lay outside [0, 1] and were clamped before quantization: a scalar on the
  /// device (no synchronisation); undefined where the algorithm cannot leave [0, 1].
  Tensor clamped;
};

/// û_ij = W_ij u_i, [B, I, J, Dout].
Tensor make_votes(const Tensor& children, const Tensor& weight);

/// Paper's algorithm 1. `bias` [J, Dout] may be undefined where options.bias is kNone. `packed`,
/// the same weight, lets the fused kernel take few images faster (kernels/fused_routing.h).
RoutingResult dynamic_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                              const DynamicRouting& options, const RoutingRequest& request = {},
                              const PackedMatrices* packed = nullptr);

/// Votes are clamped to their child's length; logits are replaced by t · ||v_j - û_ij||, with t
/// such that a child at half the mean distance gets 0.9 of the coupling. A wholly pruned W_ij (vote
/// 0, where the published code divides 0 by 0) votes 0.
RoutingResult scaled_distance_routing(const Tensor& children, const Tensor& weight,
                                      const Tensor& bias, const ScaledDistanceRouting& options,
                                      const RoutingRequest& request = {});

/// `prior` [I, J]. With a quantizer the couplings, which the prior can push out of [0, 1], are
/// clamped first and the number clamped is reported.
RoutingResult self_attention_routing(const Tensor& children, const Tensor& weight,
                                     const Tensor& prior, const SelfAttentionRouting& options,
                                     const RoutingRequest& request = {});

/// The algorithm `options` holds; `bias` is the prior for self-attention. On a GPU its tensors
/// are float32 whatever the convolutions in front of it are. `packed` is for dynamic routing.
RoutingResult route(const Tensor& children, const Tensor& weight, const Tensor& bias,
                    const RoutingOptions& options, const RoutingRequest& request = {},
                    const PackedMatrices* packed = nullptr);

}  // namespace remcaps
