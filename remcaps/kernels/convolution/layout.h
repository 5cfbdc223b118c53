// Changes the order and the type of matrices in one pass, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// `count` matrices of [rows, columns], one after another.
struct Matrices {
  int64_t count = 0, rows = 0, columns = 0;
};

/// out[n, column, row] = in[n, row, column]; `type` is the type of `in`.
void transpose_to_bfloat16(const Matrices& shape, const float* in, void* out, cudaStream_t stream);
void transpose_to_float32(const Matrices& shape, MapType type, const void* in, float* out,
                          cudaStream_t stream);

/// The filters of a convolution, [count, channels, height, width].
struct Filters {
  int64_t count = 0, channels = 0, height = 0, width = 0;
};

bool has_filters_by_phase(const Filters& shape);
/// Row y of every filter becomes row y / phases of phase y % phases:
///   out [phases, ceil(height / phases), count, width, channels]
/// The last row of a phase that has one row less is not written.
void filters_by_phase(const Filters& shape, int64_t phases, const float* in, MapType type,
                      void* out, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
