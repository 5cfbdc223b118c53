#include <algorithm>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/map_numbers.cuh"
#include "remcaps/kernels/pixel_layer_kernels.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kMostBlocks = 528;  // four for each multiprocessor of an H200
constexpr int kSumColumns = 32, kSumRows = 32;

// Of a window, with 32-bit divisions.
struct WindowDims {
  int channels, height, width, kernel_height, kernel_width, stride_y, stride_x, padding_y,
      padding_x, rows, columns, eights;
};

// One thread for eight numbers of a row.
template <typename T>
__global__ void windows_kernel(WindowDims dims, int64_t count, const float* __restrict__ images,
                               T* __restrict__ rows) {
  const int64_t thread = int64_t(blockIdx.x) * kRowThreads + threadIdx.x;
  if (thread >= count) return;
  const auto window = static_cast<int>(thread / dims.eights);
  const int first = static_cast<int>(thread % dims.eights) * 8;
  const int place = window % (dims.rows * dims.columns);
  const int image = window / (dims.rows * dims.columns);
  const int top = place / dims.columns * dims.stride_y - dims.padding_y;
  const int left = place % dims.columns * dims.stride_x - dims.padding_x;
  const int plane = dims.kernel_height * dims.kernel_width;
  const float* pixels = images + int64_t(image) * dims.channels * dims.height * dims.width;
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = first + i, channel = at / plane;
    const int y = top + at % plane / dims.kernel_width, x = left + at % dims.kernel_width;
    const bool inside =
        channel < dims.channels && y >= 0 && y < dims.height && x >= 0 && x < dims.width;
    eight.x[i] = inside ? pixels[(channel * dims.height + y) * dims.width + x] : 0.0F;
  }
  store8(rows + thread * 8, eight);
}

// A thread stays with eight columns and walks down the rows; the block's sums go to `partial`.
template <typename T>
__global__ void relu_gradient_kernel(int64_t rows, int columns, const T* __restrict__ out,
                                     const T* __restrict__ gradient, T* __restrict__ masked,
                                     float* __restrict__ partial) {
  __shared__ Eight sums[kRowThreads];
  const int eights = columns / 8, rows_at_once = kRowThreads / eights;
  const int column = threadIdx.x % eights * 8;
  Eight sum = {};
  for (int64_t row = int64_t(blockIdx.x) * rows_at_once + threadIdx.x / eights; row < rows;
       row += int64_t(gridDim.x) * rows_at_once) {
    const int64_t at = row * columns + column;
    const Eight made = load8(out + at);
    Eight grad = load8(gradient + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (!(made.x[i] > 0)) grad.x[i] = 0;
      sum.x[i] += grad.x[i];
    }
    store8(masked + at, grad);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int c = threadIdx.x; c < columns; c += kRowThreads) {
    float total = 0;
    for (int r = 0; r < rows_at_once; ++r) total += sums[r * eights + c / 8].x[c % 8];
    partial[int64_t(blockIdx.x) * columns + c] = total;
  }
}

// One block for kSumColumns columns of [count, columns].
__global__ void column_sums_kernel(int count, int columns, const float* __restrict__ partial,
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

int relu_gradient_blocks(int64_t rows, int64_t columns) {
  const int64_t rows_at_once = kRowThreads / (columns / 8);
  return static_cast<int>(std::min<int64_t>(kMostBlocks, (rows + rows_at_once - 1) / rows_at_once));
}

template <typename T>
void launch_relu_gradient(int64_t rows, int64_t columns, const void* out, const void* gradient,
                          void* masked, float* partial, float* sums, cudaStream_t stream) {
  const int blocks = relu_gradient_blocks(rows, columns), wide = static_cast<int>(columns);
  relu_gradient_kernel<T><<<blocks, kRowThreads, 0, stream>>>(
      rows, wide, static_cast<const T*>(out), static_cast<const T*>(gradient),
      static_cast<T*>(masked), partial);
  check_launch("relu_gradient");
  column_sums_kernel<<<blocks_for(columns, kSumColumns), dim3(kSumColumns, kSumRows), 0, stream>>>(
      blocks, wide, partial, sums);
  check_launch("column_sums");
}

}  // namespace

void windows_to_rows(const WindowShape& shape, int64_t length, const float* images, MapType type,
                     void* rows, cudaStream_t stream) {
  const auto narrow = [](int64_t number) { return static_cast<int>(number); };
  const WindowDims dims{.channels = narrow(shape.channels),
                        .height = narrow(shape.height),
                        .width = narrow(shape.width),
                        .kernel_height = narrow(shape.kernel_height),
                        .kernel_width = narrow(shape.kernel_width),
                        .stride_y = narrow(shape.stride_y),
                        .stride_x = narrow(shape.stride_x),
                        .padding_y = narrow(shape.padding_y),
                        .padding_x = narrow(shape.padding_x),
                        .rows = narrow(shape.rows()),
                        .columns = narrow(shape.columns()),
                        .eights = narrow(length / 8)};
  const int64_t count = shape.windows() * dims.eights;
  const int blocks = blocks_for(count, kRowThreads);
  if (type == MapType::kFloat32)
    windows_kernel<<<blocks, kRowThreads, 0, stream>>>(dims, count, images,
                                                       static_cast<float*>(rows));
  else
    windows_kernel<<<blocks, kRowThreads, 0, stream>>>(dims, count, images,
                                                       static_cast<__nv_bfloat16*>(rows));
  check_launch("windows_to_rows");
}

bool has_relu_gradient(int64_t columns) {
  return columns % 8 == 0 && columns > 0 && columns / 8 <= kRowThreads &&
         kRowThreads % (columns / 8) == 0;
}

int64_t relu_gradient_floats(int64_t rows, int64_t columns) {
  return relu_gradient_blocks(rows, columns) * columns;
}

void relu_gradient(int64_t rows, int64_t columns, MapType type, const void* out,
                   const void* gradient, void* masked, float* partial, float* sums,
                   cudaStream_t stream) {
  (type == MapType::kFloat32 ? launch_relu_gradient<float>
                             : launch_relu_gradient<__nv_bfloat16>)(rows, columns, out, gradient,
                                                                    masked, partial, sums, stream);
}

}  // namespace remcaps::kernels::cuda
