// What a convolution of pixels needs around its matrix product, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/pointwise_kernels.h"
#include "remcaps/kernels/window_shape.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// Every window of images [B, C, H, W] as a row of `length` numbers, a multiple of 8: its C * kh *
/// kw pixels in the weights' order (zeros where it leaves the image), then zeros. rows [B * h * w,
/// length], aligned to 16 bytes.
void windows_to_rows(const WindowShape& shape, int64_t length, const float* images, MapType type,
                     void* rows, cudaStream_t stream);

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
