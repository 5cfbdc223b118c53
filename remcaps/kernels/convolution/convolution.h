// Convolutions without padding over maps whose channels lie together ([B, H, W, C]), on the CPU.
//
// One row of a kernel covers kernel_width * C neighbouring floats of such a map. The convolution is
// therefore a matrix product on the map as it lies in memory; only the weights are copied, into
// panels of tile_width() columns. One panel (590 KiB in DR-CapsNet) stays in the second-level cache
// while the images pass over it.
//
// A first layer, of one or three channels, has rows that are too short for this. Its windows are
// copied side by side (unfold_windows) and multiplied by 1x1 filters.
//
// Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/simd/buffer.h"

namespace remcaps::kernels::cpu {

/// Whether a row of the kernel covers too few floats for a product of its own. The convolution is
/// then made on unfolded windows.
bool has_short_rows(const ConvolutionShape& shape);

/// The same convolution on unfolded windows: 1x1 filters of C * kh * kw channels, and one row of
/// oh * ow pixels per image.
ConvolutionShape unfolded(const ConvolutionShape& shape);

/// Every window of a map as one row: windows [B, oh * ow, C * kh * kw], in the order of the
/// weights.
void unfold_windows(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                    float* windows);

/// Weights as panels [kh, N / width, kw, M, width] of tile_width() columns.
class Panels {
 public:
  /// Copies weight [F, C, kh, kw]. The columns N are the filters and M the channels (for the
  /// convolution), or the other way round (for the gradient of the map). N must be a multiple of
  /// tile_width(). The size of the map does not matter.
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

/// The panels that convolution() reads: of the filters, unfolded where their rows are short.
Panels filter_panels(const ConvolutionShape& shape, const float* weight);

/// map [B, H, W, C], bias [F] or null -> out [B, oh, ow, F], aligned to 64 bytes. Where rows are
/// short, pass unfolded(shape) and the unfolded windows.
void convolution(const ConvolutionShape& shape, const float* map, const Panels& panels,
                 const float* bias, float* out);

/// dL/dmap [B, H, W, C] from dL/dout. C must be a multiple of tile_width() too, and `grad_map`
/// aligned to 64 bytes.
void convolution_map_gradient(const ConvolutionShape& shape, const float* weight,
                              const float* grad_out, float* grad_map);

/// dL/dweight [F, C, kh, kw]; `grad_out` is aligned to 64 bytes.
void convolution_weight_gradient(const ConvolutionShape& shape, const float* map,
                                 const float* grad_out, float* grad_weight);

}  // namespace remcaps::kernels::cpu
