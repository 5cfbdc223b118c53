// A convolution's windows with 32-bit numbers: a kernel divides by them.
#pragma once

#include "remcaps/kernels/convolution/window_shape.h"

namespace remcaps::kernels::cuda {

struct WindowDims {
  int batch, channels, height, width, kernel_height, kernel_width, stride_y, stride_x, padding_y,
      padding_x, rows, columns;

  explicit WindowDims(const WindowShape& shape)
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
        rows(static_cast<int>(shape.rows())),
        columns(static_cast<int>(shape.columns())) {}
};

}  // namespace remcaps::kernels::cuda
