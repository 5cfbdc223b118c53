// A convolution with large windows on a GPU, at the speed of plain matrix products.
#pragma once

#include <torch/types.h>

#include <array>

namespace remcaps {

/// The rows of a map are cut into strips: for every column of windows the pixels that its windows
/// see of the row. Stacked, those of the rows y, y + stride, ... are one dense matrix that begins
/// anew wherever y does, so every row of the filters is one product without a copied window. The
/// products of all rows fill a GPU that the convolution as a whole, of few places, does not.
struct StripConvolution {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
};

/// Whether strips pay: large windows of many channels, on a GPU.
bool has_strip_convolution(const StripConvolution& layer, const torch::Tensor& map,
                           const torch::Tensor& weight);

/// map [B, C, H, W], float32 or bfloat16, in which the products are made; weight [F, C, kh, kw] and
/// bias [F] (or undefined) float32. On a GPU C is a multiple of 64, F of 8, and a window has at
/// most 128 places: has_strip_convolution() knows. The result [B, F, h, w] is channels-last and of
/// the map's type; the gradients of weight and bias are float32.
torch::Tensor strip_convolution(const StripConvolution& layer, const torch::Tensor& map,
                                const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace remcaps
