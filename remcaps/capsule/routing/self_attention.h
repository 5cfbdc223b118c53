// Self-attention routing (Efficient-CapsNet).
#pragma once

#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Options of self-attention routing. It does not iterate.
struct SelfAttentionRouting {
  /// What a vote is compared with: the votes of all children for the same parent (published), or
  /// only itself. Then a_ij = <û_ij, û_ij> / sqrt(D), and a child prefers the parent that it votes
  /// longest for.
  enum class Agreement { kAll, kSelf };
  /// Where the prior is added: before a quantizer rounds the couplings (published), or after it.
  enum class Prior { kRounded, kExact };

  Agreement agreement = Agreement::kAll;
  Prior prior = Prior::kRounded;
  Squash squash = {Squash::Form::kExponential, 1e-7};

  operator RoutingPtr() const;
};

/// The learned `prior` [I, J] is added to the couplings after the softmax and can push them out of
/// [0, 1]. With Prior::kRounded they are clamped before a quantizer rounds them, and
/// RoutingResult::clamped counts those. With Prior::kExact RoutingResult::coupling is the softmax,
/// rounded if there is a quantizer; the parents see it with the prior added.
RoutingResult self_attention_routing(const Tensor& children, const Tensor& weight,
                                     const Tensor& prior, const SelfAttentionRouting& options,
                                     const RoutingRequest& request = {});

}  // namespace remcaps
