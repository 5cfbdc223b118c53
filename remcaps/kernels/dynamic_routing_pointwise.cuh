// The cheap steps of dynamic routing on CUDA: layouts, softmax, squash, and their gradients.
#pragma once

#include "remcaps/kernels/dynamic_routing_kernels.cuh"
#include "remcaps/kernels/host_device.h"

namespace remcaps::kernels::cuda {

constexpr int kTransposeRows = 8;

// [B, X] -> [X, P], zero beyond the batch. Blocks of 32 x kTransposeRows threads turn 32 x 32
// tiles.
__global__ void to_lanes(int batch, int padded, int64_t size, const float* __restrict__ from,
                         float* __restrict__ to) {
  __shared__ float tile[kWarp][kWarp + 1];
  const int64_t x0 = int64_t(blockIdx.x) * kWarp;
  const int image0 = blockIdx.y * kWarp;
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int image = image0 + row;
    const int64_t x = x0 + threadIdx.x;
    tile[row][threadIdx.x] = image < batch && x < size ? from[image * size + x] : 0.0F;
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int64_t x = x0 + row;
    const int image = image0 + threadIdx.x;
    if (image < padded && x < size) to[x * padded + image] = tile[threadIdx.x][row];
  }
}

// [X, P] -> [B, X]
__global__ void from_lanes(int batch, int padded, int64_t size, const float* __restrict__ from,
                           float* __restrict__ to) {
  __shared__ float tile[kWarp][kWarp + 1];
  const int64_t x0 = int64_t(blockIdx.x) * kWarp;
  const int image0 = blockIdx.y * kWarp;
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int64_t x = x0 + row;
    const int image = image0 + threadIdx.x;
    tile[row][threadIdx.x] = image < padded && x < size ? from[x * padded + image] : 0.0F;
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int image = image0 + row;
    const int64_t x = x0 + threadIdx.x;
    if (image < batch && x < size) to[image * size + x] = tile[threadIdx.x][row];
  }
}

__device__ inline float quantized(float coupling, const CouplingLevels& levels) {
  // The smallest level whose upper edge is not below the coupling.
  int low = 0, high = static_cast<int>(levels.count) - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (coupling > levels.edges[middle + 1])
      low = middle + 1;
    else
      high = middle;
  }
  return levels.centres[low];
}

// Logits [I, J, P] into couplings, in place. One thread per (child, image).
__global__ void softmax_over_parents(Dims dims, CouplingLevels levels, float* couplings) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.padded) return;
  const int64_t image = thread % dims.padded, i = thread / dims.padded;
  float* row = couplings + i * dims.parents * dims.padded + image;
  float highest = row[0];
  for (int j = 1; j < dims.parents; ++j) highest = fmaxf(highest, row[int64_t(j) * dims.padded]);
  float total = 0;
  for (int j = 0; j < dims.parents; ++j) {
    const float e = expf(row[int64_t(j) * dims.padded] - highest);
    row[int64_t(j) * dims.padded] = e;
    total += e;
  }
  const float scale = 1.0F / total;
  for (int j = 0; j < dims.parents; ++j) {
    float c = row[int64_t(j) * dims.padded] * scale;
    if (levels.count > 0) c = quantized(c, levels);
    row[int64_t(j) * dims.padded] = c;
  }
}

// dL/dc into dL/db, in place. One thread per (child, image).
__global__ void softmax_gradient(Dims dims, const float* __restrict__ couplings, float* gradient) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.padded) return;
  const int64_t image = thread % dims.padded, i = thread / dims.padded;
  const int64_t first = i * dims.parents * dims.padded + image;
  float mean = 0;
  for (int j = 0; j < dims.parents; ++j) {
    const int64_t at = first + int64_t(j) * dims.padded;
    mean = fmaf(couplings[at], gradient[at], mean);
  }
  for (int j = 0; j < dims.parents; ++j) {
    const int64_t at = first + int64_t(j) * dims.padded;
    gradient[at] = couplings[at] * (gradient[at] - mean);
  }
}

constexpr int kSquashRows = 16;

// Sums a value over the threads of one image, [kSquashRows][32] -> each thread of that image.
__device__ inline float sum_over_rows(float value, float (*shared)[kWarp]) {
  __syncthreads();
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  for (int row = 0; row < kSquashRows; ++row) sum += shared[row][threadIdx.x];
  return sum;
}

__device__ inline float sum_of_chunks(const float* partial, int chunks, int64_t stride) {
  float sum = 0;
#pragma unroll 8
  for (int chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * stride];
  return sum;
}

// sums = scale * (sum of all chunks) + bias; poses = squash(sums); agreed = before + poses.
// x: 32 images, y: parent; 32 x kSquashRows threads. All arrays [J, D_out, P] but bias [J, D_out].
struct SquashArguments {
  const float* partial;
  int chunks;
  float scale, epsilon;
  const float* bias;           // or null
  const float* agreed_before;  // or null: zero
  float *sums, *poses, *agreed;
};
__global__ void squash_sums(Dims dims, SquashArguments a) {
  __shared__ float shared[kSquashRows][kWarp];
  const int image = blockIdx.x * kWarp + threadIdx.x, j = blockIdx.y;
  const bool has_image = image < dims.padded;
  const int64_t stride = int64_t(dims.parents) * dims.parent_dim * dims.padded;
  float n2 = 0;
  for (int d = threadIdx.y; has_image && d < dims.parent_dim; d += kSquashRows) {
    const int row = j * dims.parent_dim + d;
    const int64_t at = int64_t(row) * dims.padded + image;
    float sum = a.scale * sum_of_chunks(a.partial + at, a.chunks, stride);
    if (a.bias != nullptr) sum += a.bias[row];
    a.sums[at] = sum;
    n2 = fmaf(sum, sum, n2);
  }
  n2 = sum_over_rows(n2, shared);
  const float factor = squash_factor(n2, a.epsilon);
  for (int d = threadIdx.y; has_image && d < dims.parent_dim; d += kSquashRows) {
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    const float pose = factor * a.sums[at];
    a.poses[at] = pose;
    a.agreed[at] = a.agreed_before == nullptr ? pose : a.agreed_before[at] + pose;
  }
}

// carried += sum of all chunks (chunks = 0: as it is); grad_sums = dL/ds out of dL/dv = carried.
// Threads as in squash_sums.
struct SquashGradientArguments {
  const float* partial;
  int chunks;
  float epsilon;
  bool fresh;  // carried starts at zero
  const float* sums;
  float *carried, *grad_sums;
};
__global__ void squash_gradient(Dims dims, SquashGradientArguments a) {
  __shared__ float shared[kSquashRows][kWarp];
  const int image = blockIdx.x * kWarp + threadIdx.x, j = blockIdx.y;
  const bool has_image = image < dims.padded;
  const int64_t stride = int64_t(dims.parents) * dims.parent_dim * dims.padded;
  float n2 = 0, along = 0;
  for (int d = threadIdx.y; has_image && d < dims.parent_dim; d += kSquashRows) {
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    float grad = a.fresh ? 0.0F : a.carried[at];
    if (a.chunks > 0) grad += sum_of_chunks(a.partial + at, a.chunks, stride);
    a.carried[at] = grad;
    const float sum = a.sums[at];
    n2 = fmaf(sum, sum, n2);
    along = fmaf(sum, grad, along);
  }
  n2 = sum_over_rows(n2, shared);
  along = sum_over_rows(along, shared);
  const float factor = squash_factor(n2, a.epsilon);
  const float twice_slope = squash_twice_slope(n2, a.epsilon);
  for (int d = threadIdx.y; has_image && d < dims.parent_dim; d += kSquashRows) {
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    a.grad_sums[at] = fmaf(factor, a.carried[at], twice_slope * along * a.sums[at]);
  }
}

// grad_bias[x] = sum over iterations and images of grad_sums[iteration, x, image]. A warp per x.
__global__ void bias_gradient(int iterations, int rows, int batch, int padded,
                              const float* __restrict__ grad_sums, float* __restrict__ grad_bias) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  float sum = 0;
  for (int iteration = 0; iteration < iterations; ++iteration)
    for (int image = threadIdx.x; image < batch; image += kWarp)
      sum += grad_sums[(int64_t(iteration) * rows + row) * padded + image];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  if (threadIdx.x == 0) grad_bias[row] = sum;
}

__global__ void fill(int64_t count, float value, float* to) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread < count) to[thread] = value;
}

}  // namespace remcaps::kernels::cuda
