// The shape of a convolution and of the map it reads.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// A convolution without dilation and groups.
struct ConvolutionShape {
  int64_t batch = 0, height = 0, width = 0, channels = 0;  ///< of the map
  int64_t filters = 0, kernel_height = 0, kernel_width = 0;
  int64_t stride_y = 1, stride_x = 1;
  int64_t padding_y = 0, padding_x = 0;  ///< zeros on each side of the map

  bool operator==(const ConvolutionShape&) const = default;

  int64_t out_height() const { return (height + 2 * padding_y - kernel_height) / stride_y + 1; }
  int64_t out_width() const { return (width + 2 * padding_x - kernel_width) / stride_x + 1; }
  int64_t taps() const { return kernel_height * kernel_width; }
  /// Windows that the kernel is moved to, over all images.
  int64_t places() const { return batch * out_height() * out_width(); }
};

/// Floats from one image, channel, row or pixel of a map to the next.
struct MapStrides {
  int64_t image = 0, channel = 0, row = 0, pixel = 0;
};

}  // namespace remcaps::kernels
