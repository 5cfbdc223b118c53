// Self-attention routing (Efficient-CapsNet).
#pragma once

#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Options of self-attention routing. It does not iterate, and recipes have no keys for it.
struct SelfAttentionRouting {
  Squash squash = {Squash::Form::kExponential, 1e-7};

  operator RoutingPtr() const;
};

/// The learned `prior` [I, J] is added to the couplings after the softmax and can push them out of
/// [0, 1]. With a quantizer they are clamped first, and RoutingResult::clamped counts those.
RoutingResult self_attention_routing(const Tensor& children, const Tensor& weight,
                                     const Tensor& prior, const SelfAttentionRouting& options,
                                     const RoutingRequest& request = {});

}  // namespace remcaps
