// Matrices that change their order and their type in one pass, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

/// So many matrices of [rows, columns], one after another.
struct Matrices {
  int64_t count = 0, rows = 0, columns = 0;
};

/// out[n, column, row] = in[n, row, column]; `type` is what `in` is stored as.
void transpose_to_bfloat16(const Matrices& shape, const float* in, void* out, cudaStream_t stream);
void transpose_to_float32(const Matrices& shape, MapType type, const void* in, float* out,
                          cudaStream_t stream);

/// Of a convolution: [count, channels, height, width].
struct Filters {
  int64_t count = 0, channels = 0, height = 0, width = 0;
};

bool has_filters_by_phase(const Filters& shape);
/// Row y of every filter as row y / phases of phase y % phases: out [phases, ceil(height / phases),
/// count, width, channels]. Rows that a phase does not have are left as they are.
void filters_by_phase(const Filters& shape, int64_t phases, const float* in, MapType type,
                      void* out, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
