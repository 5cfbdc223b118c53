// Dynamic routing, or routing by agreement (Sabour et al.; the paper's algorithm 1).
#pragma once

#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Options of dynamic routing.
struct DynamicRouting {
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  BiasUse bias = BiasUse::kEvery;
  Squash squash = {};
  KernelPath kernels = KernelPath::kFused;

  operator RoutingPtr() const;
};
/// Binds `iterations`, `gradient` and `bias`.
void bind(ConfigSection& keys, DynamicRouting& options);

/// `bias` [J, Dout] may be undefined. `packed` is a copy of the same weight with which the fused
/// kernel routes a few images faster (ops/routing.h).
RoutingResult dynamic_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                              const DynamicRouting& options, const RoutingRequest& request = {},
                              const PackedMatrices* packed = nullptr);

}  // namespace remcaps
