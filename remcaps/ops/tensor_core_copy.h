// Copies in the type and layout in which a GPU's convolutions are fastest.
#pragma once

#include <torch/types.h>

namespace remcaps {

/// A map or weight [.., C, H, W] as bfloat16, channels-last, in one pass. cuDNN may otherwise
/// transpose it at every call. The gradient is float32 in the plain layout, also in one pass;
/// torch's own casts would copy the gradient of a weight once more.
torch::Tensor tensor_core_copy(const torch::Tensor& tensor);

/// A channels-last tensor of either type as float32 in the plain layout, in one pass; not
/// differentiable.
torch::Tensor plain_copy(const torch::Tensor& tensor);

}  // namespace remcaps
