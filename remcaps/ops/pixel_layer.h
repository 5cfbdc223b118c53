// A convolution of pixels: one matrix product, with what comes before and after it fused.
#pragma once

#include <torch/types.h>

#include <array>

namespace remcaps {

/// A network's first convolution: its images have too few channels for a GPU's convolutions, which
/// make products of channels, and need no gradient. Every window of an image is a row of one matrix
/// instead, and bias, ReLU and their gradients go with the product.
struct PixelLayer {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
  torch::ScalarType type = torch::kFloat32;  ///< of the product: float32 or bfloat16
  bool relu = false;
};

/// images float32 [B, C, H, W], weight [F, C, kh, kw], bias [F] or undefined. The result [B, F, h,
/// w] is channels-last and of the layer's type; the gradients of weight and bias are float32.
torch::Tensor pixel_layer(const PixelLayer& layer, const torch::Tensor& images,
                          const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace remcaps
