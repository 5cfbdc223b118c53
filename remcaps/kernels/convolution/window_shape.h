// The windows that a convolution moves over a map.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

struct WindowShape {
  int64_t batch = 0, channels = 0, height = 0, width = 0;  ///< of the map
  int64_t kernel_height = 0, kernel_width = 0;
  int64_t stride_y = 1, stride_x = 1, padding_y = 0, padding_x = 0;

  int64_t rows() const { return (height + 2 * padding_y - kernel_height) / stride_y + 1; }
  int64_t columns() const { return (width + 2 * padding_x - kernel_width) / stride_x + 1; }
  int64_t windows() const { return batch * rows() * columns(); }
};

}  // namespace remcaps::kernels
