// The bias of a convolution's channels and its gradient, in one pass over the map each.
#pragma once

#include <torch/types.h>

#include <utility>

namespace remcaps {

/// map [B, C, h, w] of either type plus bias [C], float32; differentiable. Changes the map where
/// it lies. libtorch's own sums over a bfloat16 map run far below the memory's speed.
torch::Tensor add_channel_bias(const torch::Tensor& map, const torch::Tensor& bias);

/// The sum of a gradient [B, C, h, w] over all but its channels, float32; not differentiable.
torch::Tensor channel_sums(const torch::Tensor& gradient);

/// The gradient that passes a ReLU whose result was `out`, and its sum over the rows, float32. Both
/// [rows, channels], dense; not differentiable.
std::pair<torch::Tensor, torch::Tensor> relu_gradient(const torch::Tensor& out,
                                                      const torch::Tensor& gradient);

}  // namespace remcaps
