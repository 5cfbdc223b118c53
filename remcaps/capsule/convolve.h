// The convolutions in front of capsules.
#pragma once

#include <torch/nn/modules/conv.h>

#include "remcaps/capsule/routing.h"

namespace remcaps {

/// What the layer's own forward() gives; on the CPU by a kernel of the project's own where there is
/// one for its shape (kernels/fast_convolution.h), unless the plain path is asked for. On a GPU
/// under bfloat16 autocast the result is bfloat16 and channels-last, as are the copies of map and
/// weight it is made of: cuDNN may have to transpose them itself, at every call, where they are
/// not. There a first layer, of a few channels, is one matrix product (kernels/pixel_layer.h), with
/// tf32 too.
Tensor convolve(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

/// relu(convolve(...)), in one piece where there is a kernel for it.
Tensor convolve_relu(torch::nn::Conv2dImpl& layer, const Tensor& map, KernelPath kernels);

}  // namespace remcaps
