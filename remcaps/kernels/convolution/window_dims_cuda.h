// The shape of a convolution as 32-bit numbers: CUDA kernels divide by them, and 32-bit divisions
// are faster.
#pragma once

#include "remcaps/kernels/convolution/shape.h"

namespace remcaps::kernels::cuda {

struct WindowDims {
  int batch, channels, height, width, kernel_height, kernel_width, stride_y, stride_x, padding_y,
      padding_x, rows, columns;

  explicit WindowDims(const ConvolutionShape& shape)
      : batch(static_cast<int>(shape.batch)),
        channels(static_cast<int>(shape.channels)),
        height(static_cast<int>(shape.height)),
        width(static_cast<int>(shape.width)),
        kernel_height(static_cast<int>(shape.kernel_height)),
        kernel_width(static_cast<int>(shape.kernel_width)),
        stride_y(static_cast<int>(shape.stride_y)),
        stride_x(static_cast<int>(shape.stride_x)),
        padding_y(static_cast<int>(shape.padding_y)),
        padding_x(static_cast<int>(shape.padding_x)),
        rows(static_cast<int>(shape.out_height())),
        columns(static_cast<int>(shape.out_width())) {}
};

}  // namespace remcaps::kernels::cuda
