// Convolutions over maps whose channels lie together ([B, H, W, C]), on the CPU.
//
// A row of a kernel covers kernel_width * C neighbouring floats of such a map, so the convolution
// is a matrix product on the map as it lies: nothing is copied but the weights, into panels of
// tile_width() columns. One panel (590 KiB in DR-CapsNet) stays in the second-level cache while the
// images pass over it. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels {

/// No padding, no dilation, no groups.
struct ConvolutionShape {
  int64_t batch = 0, height = 0, width = 0, channels = 0;  ///< of the map
  int64_t filters = 0, kernel_height = 0, kernel_width = 0;
  int64_t stride_y = 1, stride_x = 1;

  int64_t out_height() const { return (height - kernel_height) / stride_y + 1; }
  int64_t out_width() const { return (width - kernel_width) / stride_x + 1; }
  int64_t taps() const { return kernel_height * kernel_width; }
  int64_t places() const { return batch * out_height() * out_width(); }
};

namespace cpu {

/// Weights as panels [kh, N / width, kw, M, width] of tile_width() columns.
class Panels {
 public:
  /// weight [F, C, kh, kw], of which a copy is kept. The columns n are the filters and m the
  /// channels (for the convolution itself), or the other way round (for the map's gradient); there
  /// must be whole tiles of them. The shape's map does not matter but for its channels.
  Panels(const ConvolutionShape& shape, const float* weight, bool columns_are_filters);

  int64_t blocks() const { return blocks_; }
  const float* at(int64_t ky, int64_t block, int64_t kx = 0) const {
    return panels_.get() + offset(ky, block, kx);
  }

 private:
  int64_t offset(int64_t ky, int64_t block, int64_t kx) const {
    return ((ky * blocks_ + block) * kernel_width_ + kx) * depth_ * width_;
  }

  int64_t width_, depth_, blocks_, kernel_width_;
  Buffer panels_;
};

/// By panels of filters, bias [F] or null -> out [B, oh, ow, F], aligned to 64 bytes.
void convolution(const ConvolutionShape& shape, const float* map, const Panels& panels,
                 const float* bias, float* out);

/// dL/dmap [B, H, W, C] out of dL/dout. C must be a multiple of tile_width() too, `grad_map`
/// aligned.
void convolution_map_gradient(const ConvolutionShape& shape, const float* weight,
                              const float* grad_out, float* grad_map);

/// dL/dweight [F, C, kh, kw]; `grad_out` aligned.
void convolution_weight_gradient(const ConvolutionShape& shape, const float* map,
                                 const float* grad_out, float* grad_weight);

}  // namespace cpu
}  // namespace remcaps::kernels
