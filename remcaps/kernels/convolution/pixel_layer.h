// What a convolution of pixels needs around its matrix product, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/window_shape.h"
#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// Every window of images [B, C, H, W] as a row of `length` numbers, a multiple of 8: its C * kh *
/// kw pixels in the weights' order (zeros where it leaves the image), then zeros. rows [B * h * w,
/// length], aligned to 16 bytes.
void windows_to_rows(const WindowShape& shape, int64_t length, const float* images, MapType type,
                     void* rows, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
