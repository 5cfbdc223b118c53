// Routing on maps: convolutional capsules and DeepCaps' 3-D convolution.
#pragma once

#include "remcaps/capsule/routing.h"

namespace remcaps {

/// Each output position P routes the children of its own window; matrices are shared over
/// positions. For each place of a window the softmax runs over the output types.
///   children  [B, T, H, W, Din]             T capsule types on an H x W map
///   weight    [T·k·k, J, Dout, Din]         places of a window in order (type, row, column)
///   bias      [J, Dout], or undefined
/// Result: poses [B, P, J, Dout], coupling [B, P, T·k·k, J]; P = positions, row by row.
RoutingResult conv_caps_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                                int64_t kernel, int64_t stride, const DynamicRouting& options,
                                const RoutingRequest& request = {});

/// The child (type · H · W + row · W + column) at each place of each window, int64 [P, T·k·k].
Tensor window_map(int64_t types, int64_t height, int64_t width, int64_t kernel, int64_t stride);

/// How the votes of Conv3D routing are made and squashed.
struct Conv3dRouting {
  enum class SquashOver {
    kAtoms,  ///< each capsule by its own length, as everywhere else
    kMap,    ///< a type's capsules of all positions together, as in the original DeepCaps
  };
  int64_t iterations = 3;
  RoutingGradient gradient = RoutingGradient::kLast;
  SquashOver squash_over = SquashOver::kAtoms;
  double squash_epsilon = 1e-8;
  KernelPath kernels = KernelPath::kFused;
};

/// DeepCaps' routing: a 3-D convolution slides over the stacked components of each input type, its
/// outputs are the votes of that type for every output type; the softmax of one input type runs
/// over all output types AND positions together.
///   children   [B, T·Din, H, W]        channel = type · Din + component
///   weight     [J·Dout, 1, depth, 3, 3]
///   conv_bias  [J·Dout], or undefined   added to every vote
///   bias       [J, Dout], or undefined  added to the pre-activation in every iteration
/// Result: poses [B, J, Dout, H, W], coupling [B, P = H·W, T, J].
RoutingResult conv3d_routing(const Tensor& children, const Tensor& weight, const Tensor& conv_bias,
                             const Tensor& bias, int64_t child_dim, int64_t parent_dim,
                             const Conv3dRouting& options, const RoutingRequest& request = {});

}  // namespace remcaps
