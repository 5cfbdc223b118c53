#include <cuda_bf16.h>

#include <algorithm>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/layout_kernels.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8;
constexpr int64_t kMostBlocks = 65535;  // of the grid's second and third dimension

__device__ inline float widened(float x) {
  return x;
}
__device__ inline float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline void narrowed(float x, float* to) {
  *to = x;
}
__device__ inline void narrowed(float x, __nv_bfloat16* to) {
  *to = __float2bfloat16(x);
}

// A tile goes through shared memory, so that reading and writing both run along rows.
template <typename In, typename Out>
__global__ void transpose_kernel(Matrices shape, const In* __restrict__ in, Out* __restrict__ out) {
  __shared__ float tile[kTile][kTile + 1];  // one more: no two rows begin in the same bank
  const int64_t size = shape.rows * shape.columns;
  for (int64_t n = blockIdx.z; n < shape.count; n += gridDim.z) {
    for (int64_t first_row = int64_t(blockIdx.y) * kTile; first_row < shape.rows;
         first_row += int64_t(gridDim.y) * kTile) {
      const int64_t first_column = int64_t(blockIdx.x) * kTile;
      for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int64_t row = first_row + y, column = first_column + threadIdx.x;
        if (row < shape.rows && column < shape.columns)
          tile[y][threadIdx.x] = widened(in[n * size + row * shape.columns + column]);
      }
      __syncthreads();
      for (int y = threadIdx.y; y < kTile; y += kTileRows) {
        const int64_t column = first_column + y, row = first_row + threadIdx.x;
        if (row < shape.rows && column < shape.columns)
          narrowed(tile[threadIdx.x][y], &out[n * size + column * shape.rows + row]);
      }
      __syncthreads();
    }
  }
}

template <typename In, typename Out>
void transpose(const Matrices& shape, const In* in, Out* out, cudaStream_t stream) {
  if (shape.count * shape.rows * shape.columns == 0) return;
  const dim3 blocks(
      blocks_for(shape.columns, kTile),
      static_cast<unsigned>(std::min<int64_t>(blocks_for(shape.rows, kTile), kMostBlocks)),
      static_cast<unsigned>(std::min<int64_t>(shape.count, kMostBlocks)));
  transpose_kernel<<<blocks, dim3(kTile, kTileRows), 0, stream>>>(shape, in, out);
  check_launch("transpose");
}

}  // namespace

void transpose_to_bfloat16(const Matrices& shape, const float* in, void* out, cudaStream_t stream) {
  transpose(shape, in, static_cast<__nv_bfloat16*>(out), stream);
}

void transpose_to_float32(const Matrices& shape, const void* in, float* out, cudaStream_t stream) {
  transpose(shape, static_cast<const __nv_bfloat16*>(in), out, stream);
}

}  // namespace remcaps::kernels::cuda
