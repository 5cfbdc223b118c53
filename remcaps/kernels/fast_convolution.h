// The convolutions in front of capsules on the CPU, as a differentiable torch operation.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>

namespace remcaps {

/// Whether fast_convolution() has a kernel for these tensors: float32 on the CPU, filters (and,
/// where the map needs a gradient, channels) in whole tiles of this CPU's vectors. Maps of few
/// channels are taken only where they need no gradient: images.
bool has_fast_convolution(const torch::Tensor& map, const torch::Tensor& weight);

/// A convolution without padding, dilation and groups.
///   map [B, C, H, W]   weight [F, C, kh, kw]   bias [F] or undefined   -> [B, F, oh, ow]
/// Works on channels-last maps (others are copied) and returns one.
torch::Tensor fast_convolution(const torch::Tensor& map, const torch::Tensor& weight,
                               const torch::Tensor& bias, std::array<int64_t, 2> stride);

}  // namespace remcaps
