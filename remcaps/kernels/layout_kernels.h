// Matrices that change their order and their type in one pass, on raw pointers.
#pragma once

#include <cstdint>

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>

namespace remcaps::kernels::cuda {

/// So many matrices of [rows, columns], one after another.
struct Matrices {
  int64_t count = 0, rows = 0, columns = 0;
};

/// out[n, column, row] = in[n, row, column], rounded to bfloat16 (out) or widened from it (in).
void transpose_to_bfloat16(const Matrices& shape, const float* in, void* out, cudaStream_t stream);
void transpose_to_float32(const Matrices& shape, const void* in, float* out, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
