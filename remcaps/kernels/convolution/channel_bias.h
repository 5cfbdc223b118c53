// The bias of a convolution's channels and its gradient, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

// Matrices [rows, columns] are dense and aligned to 16 bytes: channels-last maps with the channels
// as columns.

/// Whether there are kernels for this number of columns.
bool has_bias_kernels(int64_t columns);
/// How many floats `partial` must hold.
int64_t column_sums_floats(int64_t rows, int64_t columns);

/// Adds bias[column] to every row.
void add_bias(int64_t rows, int64_t columns, MapType type, const float* bias, void* matrix,
              cudaStream_t stream);
/// sums[column] = the sum of the matrix over its rows.
void column_sums(int64_t rows, int64_t columns, MapType type, const void* matrix, float* partial,
                 float* sums, cudaStream_t stream);
/// masked = gradient where out > 0, else 0; sums[column] = the sum of masked over the rows.
void relu_gradient(int64_t rows, int64_t columns, MapType type, const void* out,
                   const void* gradient, void* masked, float* partial, float* sums,
                   cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
