#include <algorithm>
#include <type_traits>

#include "remcaps/kernels/convolution/channel_bias.h"
#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/cuda/map_numbers.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 528;  // four for each multiprocessor of an H200
constexpr int kSumColumns = 32, kSumRows = 32;

// Calls body(offset of eight columns in the matrix) for each row of a thread. A thread keeps its
// columns.
template <typename Body>
__device__ void walk_down(int64_t rows, int columns, const Body& body) {
  const int eights = columns / 8, rows_at_once = kThreads / eights;
  const int column = threadIdx.x % eights * 8;
  for (int64_t row = int64_t(blockIdx.x) * rows_at_once + threadIdx.x / eights; row < rows;
       row += int64_t(gridDim.x) * rows_at_once)
    body(row * columns + column);
}

// Adds up the sums of the block's threads and writes them to a row of `partial`.
__device__ void put_partial_sums(int columns, const Eight& sum, float* __restrict__ partial) {
  __shared__ Eight sums[kThreads];
  sums[threadIdx.x] = sum;
  __syncthreads();
  const int eights = columns / 8, rows_at_once = kThreads / eights;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    float total = 0;
    for (int r = 0; r < rows_at_once; ++r) total += sums[r * eights + c / 8].x[c % 8];
    partial[int64_t(blockIdx.x) * columns + c] = total;
  }
}

template <typename T>
__global__ void add_bias_kernel(int64_t rows, int columns, const float* __restrict__ bias,
                                T* __restrict__ matrix) {
  const Eight more = load8(bias + threadIdx.x % (columns / 8) * 8);
  walk_down(rows, columns, [&](int64_t at) {
    Eight eight = load8(matrix + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) eight.x[i] += more.x[i];
    store8(matrix + at, eight);
  });
}

template <typename T>
__global__ void partial_sums_kernel(int64_t rows, int columns, const T* __restrict__ matrix,
                                    float* __restrict__ partial) {
  Eight sum = {};
  walk_down(rows, columns, [&](int64_t at) {
    const Eight more = load8(matrix + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.x[i] += more.x[i];
  });
  put_partial_sums(columns, sum, partial);
}

template <typename T>
__global__ void relu_gradient_kernel(int64_t rows, int columns, const T* __restrict__ out,
                                     const T* __restrict__ gradient, T* __restrict__ masked,
                                     float* __restrict__ partial) {
  Eight sum = {};
  walk_down(rows, columns, [&](int64_t at) {
    const Eight made = load8(out + at);
    Eight grad = load8(gradient + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (!(made.x[i] > 0)) grad.x[i] = 0;
      sum.x[i] += grad.x[i];
    }
    store8(masked + at, grad);
  });
  put_partial_sums(columns, sum, partial);
}

// One block sums kSumColumns columns of [count, columns].
__global__ void total_sums_kernel(int count, int columns, const float* __restrict__ partial,
                                  float* __restrict__ sums) {
  __shared__ float parts[kSumRows][kSumColumns + 1];
  const int column = blockIdx.x * kSumColumns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = threadIdx.y; row < count; row += kSumRows)
      sum += partial[int64_t(row) * columns + column];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  sum = 0;
  for (int row = 0; row < kSumRows; ++row) sum += parts[row][threadIdx.x];
  sums[column] = sum;
}

int blocks_of(int64_t rows, int64_t columns) {
  const int64_t rows_at_once = kThreads / (columns / 8);
  return static_cast<int>(std::min<int64_t>(kMostBlocks, (rows + rows_at_once - 1) / rows_at_once));
}

void total_sums(int blocks, int64_t columns, const float* partial, float* sums,
                cudaStream_t stream) {
  total_sums_kernel<<<blocks_for(columns, kSumColumns), dim3(kSumColumns, kSumRows), 0, stream>>>(
      blocks, static_cast<int>(columns), partial, sums);
  check_launch("total_sums");
}

// Calls body with a null pointer to the element type of the matrix.
template <typename Body>
void with_type(MapType type, const Body& body) {
  if (type == MapType::kFloat32)
    body(static_cast<float*>(nullptr));
  else
    body(static_cast<__nv_bfloat16*>(nullptr));
}

}  // namespace

bool has_bias_kernels(int64_t columns) {
  return columns % 8 == 0 && columns > 0 && columns / 8 <= kThreads &&
         kThreads % (columns / 8) == 0;
}

int64_t column_sums_floats(int64_t rows, int64_t columns) {
  return blocks_of(rows, columns) * columns;
}

void add_bias(int64_t rows, int64_t columns, MapType type, const float* bias, void* matrix,
              cudaStream_t stream) {
  if (rows == 0) return;
  with_type(type, [&](auto* typed) {
    add_bias_kernel<<<blocks_of(rows, columns), kThreads, 0, stream>>>(
        rows, static_cast<int>(columns), bias, static_cast<decltype(typed)>(matrix));
  });
  check_launch("add_bias");
}

void column_sums(int64_t rows, int64_t columns, MapType type, const void* matrix, float* partial,
                 float* sums, cudaStream_t stream) {
  const int blocks = blocks_of(rows, columns);
  if (blocks > 0)
    with_type(type, [&](const auto* typed) {
      partial_sums_kernel<<<blocks, kThreads, 0, stream>>>(
          rows, static_cast<int>(columns), static_cast<decltype(typed)>(matrix), partial);
    });
  check_launch("column_sums");
  total_sums(blocks, columns, partial, sums, stream);
}

void relu_gradient(int64_t rows, int64_t columns, MapType type, const void* out,
                   const void* gradient, void* masked, float* partial, float* sums,
                   cudaStream_t stream) {
  const int blocks = blocks_of(rows, columns);
  if (blocks > 0)
    with_type(type, [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      relu_gradient_kernel<<<blocks, kThreads, 0, stream>>>(
          rows, static_cast<int>(columns), static_cast<const T*>(out),
          static_cast<const T*>(gradient), static_cast<T*>(masked), partial);
    });
  check_launch("relu_gradient");
  total_sums(blocks, columns, partial, sums, stream);
}

}  // namespace remcaps::kernels::cuda
