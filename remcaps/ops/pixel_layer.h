// A network's first convolution on a GPU: one matrix product, with bias and ReLU fused.
#pragma once

#include <torch/types.h>

#include <array>

namespace remcaps {

/// A convolution of images, which need no gradient. They have too few channels for cuDNN, whose
/// products run over channels. Here every window of an image is one row of a matrix.
struct PixelLayer {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
  torch::ScalarType type = torch::kFloat32;  ///< type of the product: float32 or bfloat16
  bool relu = false;
};

/// images float32 [B, C, H, W], weight [F, C, kh, kw], bias [F] or undefined. The result
/// [B, F, h, w] is channels-last and has the layer's type; the gradients of weight and bias are
/// float32. convolution() (convolution.h) checks the arguments.
torch::Tensor pixel_layer(const PixelLayer& layer, const torch::Tensor& images,
                          const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace remcaps
