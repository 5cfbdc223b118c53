// What a GPU's convolutions are fastest with.
#pragma once

#include <torch/types.h>

namespace remcaps {

/// A map or weight [.., C, H, W] as bfloat16, channels-last, in one pass. Its gradient is float32
/// in the plain layout, in one pass too: that of a weight is then kept as it is, where torch's own
/// casts would have it copied once more.
torch::Tensor tensor_core_copy(const torch::Tensor& tensor);

/// A channels-last tensor of either type as float32 in the plain layout, in one pass; not
/// differentiable.
torch::Tensor plain_copy(const torch::Tensor& tensor);

}  // namespace remcaps
