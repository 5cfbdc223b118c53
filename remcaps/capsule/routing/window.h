// Dynamic routing inside the windows of a map of capsules (ConvCaps).
#pragma once

#include "remcaps/capsule/routing/dynamic.h"

namespace remcaps {

/// Each output position routes the children of its own window. All positions share the matrices.
/// For each place of a window the softmax runs over the output types.
///   children  [B, T, H, W, Din]      T capsule types on an H x W map
///   weight    [T·k·k, J, Dout, Din]  places of a window in order (type, row, column)
///   bias      [J, Dout]              or undefined
/// Result, for P output positions, row by row:
///   poses     [B, P, J, Dout]
///   coupling  [B, P, T·k·k, J]
RoutingResult conv_caps_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                                int64_t kernel, int64_t stride, const DynamicRouting& options,
                                const RoutingRequest& request = {});

/// The index of the child (type · H · W + row · W + column) at each place of each window, int64
/// [P, T·k·k].
Tensor window_map(int64_t types, int64_t height, int64_t width, int64_t kernel, int64_t stride);

/// `window` is one window: its places are the children, the output types are the parents.
RoutingCost conv_caps_cost(const RoutedLayer& window, int64_t positions,
                           const DynamicRouting& options);

}  // namespace remcaps
