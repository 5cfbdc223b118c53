// What a convolution of pixels needs around its matrix product, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/pointwise_kernels.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// Windows of images [B, C, H, W], each a row of `length` numbers: its C * kh * kw pixels in the
/// weights' order (zeros where it leaves the image), then zeros.
struct WindowShape {
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t kernel_height = 0, kernel_width = 0;
  int64_t stride_y = 1, stride_x = 1, padding_y = 0, padding_x = 0;
  int64_t length = 0;  ///< a multiple of 8

  int64_t rows() const { return (height + 2 * padding_y - kernel_height) / stride_y + 1; }
  int64_t columns() const { return (width + 2 * padding_x - kernel_width) / stride_x + 1; }
  int64_t windows() const { return batch * rows() * columns(); }
};

/// rows [B * h * w, length], aligned to 16 bytes.
void windows_to_rows(const WindowShape& shape, const float* images, MapType type, void* rows,
                     cudaStream_t stream);

/// Whether relu_gradient can take rows of so many numbers.
bool has_relu_gradient(int64_t columns);
/// Floats of `partial`.
int64_t relu_gradient_floats(int64_t rows, int64_t columns);
/// masked = gradient where out > 0, else 0; sums[column] = the sum of masked over the rows. All
/// matrices [rows, columns], dense and aligned to 16 bytes.
void relu_gradient(int64_t rows, int64_t columns, MapType type, const void* out,
                   const void* gradient, void* masked, float* partial, float* sums,
                   cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
