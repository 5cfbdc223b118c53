// The bias of a convolution's channels and its gradient, in one pass over the map each.
#pragma once

#include <torch/types.h>

#include <utility>

namespace remcaps {

/// Adds bias [C] float32 to a map [B, C, h, w] of float32 or bfloat16, in place; differentiable.
/// libtorch's own sums over a bfloat16 map are much slower than the memory allows.
torch::Tensor add_channel_bias(const torch::Tensor& map, const torch::Tensor& bias);

/// The sum of a gradient [B, C, h, w] over all but its channels, float32; not differentiable.
torch::Tensor channel_sums(const torch::Tensor& gradient);

/// The gradient of a ReLU's input, given its result `out`, and the sum of that gradient over the
/// rows, float32. Both arguments are dense [rows, channels]; not differentiable.
std::pair<torch::Tensor, torch::Tensor> relu_gradient(const torch::Tensor& out,
                                                      const torch::Tensor& gradient);

}  // namespace remcaps
