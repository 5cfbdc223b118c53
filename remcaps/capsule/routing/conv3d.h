// Routing through a 3-D convolution (DeepCaps).
#pragma once

#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Options of DeepCaps' 3-D routing.
struct Conv3dRouting {
  enum class SquashOver {
    kAtoms,  ///< each capsule by its own length, as everywhere else
    kMap,    ///< the capsules of a type at all positions together, as in the original DeepCaps
  };
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  SquashOver squash_over = SquashOver::kAtoms;
  double squash_epsilon = 1e-8;
  KernelPath kernels = KernelPath::kFused;
};
/// Binds `iterations`, `gradient` and `squash_over`.
void bind(ConfigSection& keys, Conv3dRouting& options);

/// A 3-D convolution slides over the stacked components of the input types. Its outputs at an input
/// type are the votes of that type for every output type. The softmax of an input type runs over
/// all output types AND positions together.
///   children   [B, T·Din, H, W]          channel = type · Din + component
///   weight     [J·Dout, 1, depth, 3, 3]
///   conv_bias  [J·Dout]                  or undefined; added to every vote
///   bias       [J, Dout]                 or undefined; added to the pre-activation in every
///                                        iteration
/// Result, for P = H·W positions, row by row:
///   poses      [B, J, Dout, H, W]
///   coupling   [B, P, T, J]
RoutingResult conv3d_routing(const Tensor& children, const Tensor& weight, const Tensor& conv_bias,
                             const Tensor& bias, int64_t child_dim, int64_t parent_dim,
                             const Conv3dRouting& options, const RoutingRequest& request = {});

/// The cost for as many output types as input types, all of `dim` numbers.
RoutingCost conv3d_cost(int64_t types, int64_t dim, int64_t depth, int64_t positions,
                        const Conv3dRouting& options);

}  // namespace remcaps
