// Convolutional capsules: at each place of a map, parents that see the capsules of a window.
#pragma once

#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/forward.h"
#include "remcaps/capsule/routing/conv3d.h"
#include "remcaps/capsule/routing/window.h"

namespace remcaps {

/// Options for ConvCaps: windows of kernel x kernel places, all types, valid padding.
struct ConvCapsOptions {
  ConvCapsOptions(int64_t child_types, int64_t parent_types, int64_t kernel)
      : child_types_(child_types), parent_types_(parent_types), kernel_(kernel) {}
  /// I_window, the number of places in a window.
  int64_t places() const { return child_types_ * kernel_ * kernel_; }
  /// One window as the routing sees it.
  RoutedLayer window() const {
    return {places(), parent_types_, child_dim_, parent_dim_, bias_mean_, /*bias_std=*/0.0};
  }
  TORCH_ARG(int64_t, child_types);
  TORCH_ARG(int64_t, parent_types);
  TORCH_ARG(int64_t, kernel);
  TORCH_ARG(int64_t, stride) = 1;
  TORCH_ARG(int64_t, child_dim) = 16;
  TORCH_ARG(int64_t, parent_dim) = 16;
  TORCH_ARG(DynamicRouting, routing) = {};
  TORCH_ARG(double, weight_std) = 0.1;  ///< W ~ N(0, weight_std²)
  TORCH_ARG(double, bias_mean) = 0.1;
};

/// children [B, T·H·W, Din] in order (type, y, x) -> what conv_caps_routing() returns.
/// Parameters:
///   weight  [T·k·k, J, Dout, Din]  places in order (type, row, column), shared by all positions
///   bias    [J, Dout]              if the routing has one
class ConvCapsImpl : public torch::nn::Module {
 public:
  explicit ConvCapsImpl(ConvCapsOptions options);
  RoutingResult forward(const Tensor& children, int64_t height, int64_t width,
                        const RoutingRequest& request = {});

  /// Poses [B, P, J, Dout] as children of the next layer, [B, J·P, Dout] in order (type, y, x).
  static Tensor as_children(const Tensor& poses);

  const ConvCapsOptions options;
  Tensor weight, bias;
};
TORCH_MODULE(ConvCaps);

/// Options for Conv2dCaps: a convolution over the stacked components of all types, then squash.
struct Conv2dCapsOptions {
  Conv2dCapsOptions(int64_t in_channels, int64_t types, int64_t dim)
      : in_channels_(in_channels), types_(types), dim_(dim) {}
  TORCH_ARG(int64_t, in_channels);  ///< types · dim of the layer below
  TORCH_ARG(int64_t, types);
  TORCH_ARG(int64_t, dim);
  TORCH_ARG(int64_t, stride) = 1;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(Squash, squash) = (Squash{Squash::Form::kNorm, 1e-8});
  TORCH_ARG(KernelPath, kernels) = KernelPath::kFused;
};

/// DeepCaps' capsules without routing: 3x3 convolution, padding 1, squash of each capsule.
/// [B, C, H, W] -> [B, types·dim, H/stride, W/stride], channel = type · dim + component. The result
/// has the type and layout of the convolution's (convolve.h).
/// Parameters: conv.weight, conv.bias.
class Conv2dCapsImpl : public torch::nn::Module {
 public:
  explicit Conv2dCapsImpl(Conv2dCapsOptions options);
  Tensor forward(const Tensor& capsules);

  const Conv2dCapsOptions options;
  Convolution conv{nullptr};
};
TORCH_MODULE(Conv2dCaps);

/// Options for Conv3dCaps, DeepCaps' routed convolution.
struct Conv3dCapsOptions {
  Conv3dCapsOptions(int64_t types, int64_t dim) : types_(types), dim_(dim) {}
  TORCH_ARG(int64_t, types);  ///< of the children, and as many of the parents
  TORCH_ARG(int64_t, dim);
  TORCH_ARG(int64_t, depth) = 3;  ///< votes see the first `depth` components of a child
  TORCH_ARG(bool, conv_bias) = true;
  TORCH_ARG(bool, bias) = false;  ///< a bias per parent, 0.1 at the start
  TORCH_ARG(Conv3dRouting, routing) = {};
};

/// [B, types·dim, H, W] -> what conv3d_routing() returns.
/// Parameters:
///   conv.weight  [types·dim, 1, depth, 3, 3]
///   conv.bias    [types·dim]  if conv_bias is set
///   bias         [types, dim] if bias is set
class Conv3dCapsImpl : public torch::nn::Module {
 public:
  explicit Conv3dCapsImpl(Conv3dCapsOptions options);
  RoutingResult forward(const Tensor& capsules, const RoutingRequest& request = {});

  const Conv3dCapsOptions options;
  torch::nn::Conv3d conv{nullptr};
  Tensor bias;
};
TORCH_MODULE(Conv3dCaps);

}  // namespace remcaps
