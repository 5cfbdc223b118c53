// The windows of a network's first convolution, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// Every window of images [B, C, H, W] becomes one row of `length` numbers, a multiple of 8: its
/// C * kh * kw pixels in the order of the weights (zeros outside the image), then zeros.
///   rows [B * oh * ow, length], aligned to 16 bytes
void windows_to_rows(const ConvolutionShape& shape, int64_t length, const float* images,
                     MapType type, void* rows, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
