// A convolution with large windows on a GPU, at the speed of plain matrix products.
#pragma once

#include <torch/types.h>

#include <array>

namespace remcaps {

/// Every row of a map is cut into a strip: for every column of windows, the pixels that its windows
/// see of that row. The strips of rows y, y + stride, ... are stacked into one dense matrix. Every
/// row of the filters is then one matrix product with a part of the stack, and no window is copied
/// as a whole. The products of all rows together fill a GPU; the convolution alone, with its few
/// places, does not.
struct StripConvolution {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0};
};

/// Whether this build has CUDA kernels for filters of this size: C a multiple of 64, and at most
/// 128 places in a window.
bool has_strip_kernels(const torch::Tensor& weight);

/// map [B, C, H, W] float32 or bfloat16, which is also the type of the products; weight
/// [F, C, kh, kw] with kh >= stride[0] and bias [F] (or undefined) float32. The result [B, F, h, w]
/// is channels-last and has the map's type; the gradients of weight and bias are float32.
/// convolution() (convolution.h) checks the arguments.
torch::Tensor strip_convolution(const StripConvolution& layer, const torch::Tensor& map,
                                const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace remcaps
