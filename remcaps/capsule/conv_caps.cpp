#include "remcaps/capsule/conv_caps.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/iterated.h"

namespace remcaps {

ConvCapsImpl::ConvCapsImpl(ConvCapsOptions options_) : options(std::move(options_)) {
  weight = register_parameter("weight", torch::randn({options.places(), options.parent_types(),
                                                      options.parent_dim(), options.child_dim()}) *
                                            options.weight_std());
  if (const auto parameter = bias_parameter(options.routing().bias, options.window()))
    bias = register_parameter(parameter->name, torch::full(parameter->shape, parameter->mean));
}

RoutingResult ConvCapsImpl::forward(const Tensor& children, int64_t height, int64_t width,
                                    const RoutingRequest& request) {
  check(children.dim() == 3 && children.size(1) == options.child_types() * height * width,
        "ConvCaps: input [{}]; expected [B, {} types x {}x{}, {}]",
        fmt::join(children.sizes(), ", "), options.child_types(), height, width,
        options.child_dim());
  return conv_caps_routing(
      children.view({children.size(0), options.child_types(), height, width, children.size(2)}),
      weight, bias, options.kernel(), options.stride(), options.routing(), request);
}

Tensor ConvCapsImpl::as_children(const Tensor& poses) {
  return poses.transpose(1, 2).flatten(1, 2);
}

Conv2dCapsImpl::Conv2dCapsImpl(Conv2dCapsOptions options_) : options(std::move(options_)) {
  conv = register_module("conv",
                         Convolution(torch::nn::Conv2dOptions(options.in_channels(),
                                                              options.types() * options.dim(), 3)
                                         .stride(options.stride())
                                         .padding(1)
                                         .bias(options.bias())));
}

Tensor Conv2dCapsImpl::forward(const Tensor& capsules) {
  return squash_channels(convolve(*conv, capsules, options.kernels()), options.types(),
                         options.dim(), options.squash(), options.kernels());
}

Conv3dCapsImpl::Conv3dCapsImpl(Conv3dCapsOptions options_) : options(std::move(options_)) {
  const int64_t channels = options.types() * options.dim();
  conv = register_module(
      "conv", torch::nn::Conv3d(torch::nn::Conv3dOptions(1, channels, {options.depth(), 3, 3})
                                    .stride({options.dim(), 1, 1})
                                    .padding({0, 1, 1})
                                    .bias(options.conv_bias())));
  if (options.bias())
    bias = register_parameter("bias", torch::full({options.types(), options.dim()}, 0.1));
}

RoutingResult Conv3dCapsImpl::forward(const Tensor& capsules, const RoutingRequest& request) {
  return conv3d_routing(capsules, conv->weight, conv->bias, bias, options.dim(), options.dim(),
                        options.routing(), request);
}

}  // namespace remcaps
