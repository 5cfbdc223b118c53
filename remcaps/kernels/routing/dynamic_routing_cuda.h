// Device code of dynamic routing. The kernels with template arguments are compiled for certain pose
// sizes (with_pose_sizes). The kernels *_any take any size: plain loops, one thread per result.
#pragma once

#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {

// products[i, j] = u_i . (W_ij^T x_j) = u^_ij . x_j
template <int kDin, int kDout>
__global__ void __launch_bounds__(512)
    vote_products(Dims dims, int chunk, const float* __restrict__ u,
                  const float* __restrict__ weight, const float* __restrict__ x,
                  float* __restrict__ products) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const ParentTask task = parent_task(dims, chunk);
  if (task.parent >= dims.parents) return;
  auto queue = blocks_of_parent<kBlock>(shared, dims, weight, task.parent, task.begin, task.end);
  float2 pose[kDout];
#pragma unroll
  for (int d = 0; d < kDout; ++d)
    pose[d] = task.has_images
                  ? load2(x + int64_t(task.parent * kDout + d) * dims.padded + task.image)
                  : float2{0, 0};
  for (int i = task.begin; i < task.end; ++i) {
    const float4* w = queue.pop();
    float2 product = {0, 0};
    if (is_alive<kBlock>(w) && task.has_images) {
      float2 back[kDin] = {};
#pragma unroll
      for (int d = 0; d < kDout; ++d) add_transposed_row<kDin>(w + d * kDin / 4, pose[d], back);
#pragma unroll
      for (int k = 0; k < kDin; ++k) {
        const float2 child = load2(u + int64_t(i * kDin + k) * dims.padded + task.image);
        product.x = fmaf(child.x, back[k].x, product.x);
        product.y = fmaf(child.y, back[k].y, product.y);
      }
    }
    if (task.has_images)
      store2(products + (int64_t(i) * dims.parents + task.parent) * dims.padded + task.image,
             product);
  }
}

// partial[chunk, j] = sum over a chunk's children of factors[i, j] u^_ij (factors null: all are 1).
template <int kDin, int kDout>
__global__ void __launch_bounds__(512)
    weighted_votes(Dims dims, int chunk, const float* __restrict__ u,
                   const float* __restrict__ weight, const float* __restrict__ factors,
                   float* __restrict__ partial) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const ParentTask task = parent_task(dims, chunk);
  if (task.parent >= dims.parents) return;
  auto queue = blocks_of_parent<kBlock>(shared, dims, weight, task.parent, task.begin, task.end);
  float2 sum[kDout] = {};
  for (int i = task.begin; i < task.end; ++i) {
    const float4* w = queue.pop();
    if (!is_alive<kBlock>(w) || !task.has_images) continue;
    float2 factor = {1, 1};
    if (factors != nullptr)
      factor =
          load2(factors + (int64_t(i) * dims.parents + task.parent) * dims.padded + task.image);
    float2 child[kDin];
#pragma unroll
    for (int k = 0; k < kDin; ++k) {
      child[k] = load2(u + int64_t(i * kDin + k) * dims.padded + task.image);
      child[k].x *= factor.x;
      child[k].y *= factor.y;
    }
#pragma unroll
    for (int d = 0; d < kDout; ++d)
#pragma unroll
      for (int k = 0; k < kDin / 4; ++k) {
        const float4 row = w[d * (kDin / 4) + k];
        fma2(sum[d], row.x, child[4 * k + 0]);
        fma2(sum[d], row.y, child[4 * k + 1]);
        fma2(sum[d], row.z, child[4 * k + 2]);
        fma2(sum[d], row.w, child[4 * k + 3]);
      }
  }
  if (!task.has_images) return;
  float* out = partial + (int64_t(blockIdx.x) * dims.parents + task.parent) * kDout * dims.padded +
               task.image;
#pragma unroll
  for (int d = 0; d < kDout; ++d) store2(out + int64_t(d) * dims.padded, sum[d]);
}

// grad_u_i (+)= sum_j factors[i, j] W_ij^T x_j (factors null: all are `uniform`). A warp stays with
// one child. The grid is
//   x  block of children, one per warp
//   y  tile of images
template <int kDin, int kDout>
__global__ void __launch_bounds__(512)
    child_gradient(Dims dims, const float* __restrict__ weight, const float* __restrict__ factors,
                   float uniform, const float* __restrict__ x, bool accumulate,
                   float* __restrict__ grad_u) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * blockDim.y + threadIdx.y;
  if (i >= dims.children) return;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerThread;
  const bool has_images = image < dims.padded;
  auto queue = blocks_of_child<kBlock>(shared, dims, weight, i);
  float2 grad[kDin] = {};
  for (int j = 0; j < dims.parents; ++j) {
    const float4* w = queue.pop();
    if (!is_alive<kBlock>(w) || !has_images) continue;
    float2 factor = {uniform, uniform};
    if (factors != nullptr)
      factor = load2(factors + (int64_t(i) * dims.parents + j) * dims.padded + image);
#pragma unroll
    for (int d = 0; d < kDout; ++d) {
      float2 value = load2(x + int64_t(j * kDout + d) * dims.padded + image);
      value.x *= factor.x;
      value.y *= factor.y;
      add_transposed_row<kDin>(w + d * kDin / 4, value, grad);
    }
  }
  if (!has_images) return;
#pragma unroll
  for (int k = 0; k < kDin; ++k) {
    float* out = grad_u + int64_t(i * kDin + k) * dims.padded + image;
    if (accumulate) {
      const float2 before = load2(out);
      grad[k].x += before.x;
      grad[k].y += before.y;
    }
    store2(out, grad[k]);
  }
}

// One thread per (i, j, image).
__global__ void vote_products_any(Dims dims, const float* __restrict__ u,
                                  const float* __restrict__ weight, const float* __restrict__ x,
                                  float* __restrict__ products) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pairs = int64_t(dims.children) * dims.parents;
  if (thread >= pairs * dims.padded) return;
  const int64_t image = thread % dims.padded, ij = thread / dims.padded;
  const int64_t i = ij / dims.parents, j = ij % dims.parents;
  const float* w = weight + ij * dims.parent_dim * dims.child_dim;
  float product = 0;
  for (int d = 0; d < dims.parent_dim; ++d) {
    float vote = 0;
    for (int k = 0; k < dims.child_dim; ++k)
      vote =
          fmaf(w[d * dims.child_dim + k], u[(i * dims.child_dim + k) * dims.padded + image], vote);
    product = fmaf(vote, x[(j * dims.parent_dim + d) * dims.padded + image], product);
  }
  products[thread] = product;
}

// One thread per (j, d, image); blockIdx.y is the chunk.
__global__ void weighted_votes_any(Dims dims, int chunk, const float* __restrict__ u,
                                   const float* __restrict__ weight,
                                   const float* __restrict__ factors, float* __restrict__ partial) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t rows = int64_t(dims.parents) * dims.parent_dim;
  if (thread >= rows * dims.padded) return;
  const int64_t image = thread % dims.padded, row = thread / dims.padded;
  const int64_t j = row / dims.parent_dim;
  const int begin = blockIdx.y * chunk, end = min(dims.children, begin + chunk);
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    const float* w = weight + (i * rows + row) * dims.child_dim;
    float vote = 0;
    for (int k = 0; k < dims.child_dim; ++k)
      vote = fmaf(w[k], u[(i * dims.child_dim + k) * dims.padded + image], vote);
    const float factor =
        factors == nullptr ? 1.0F : factors[(i * dims.parents + j) * dims.padded + image];
    sum = fmaf(factor, vote, sum);
  }
  partial[blockIdx.y * rows * dims.padded + thread] = sum;
}

// One thread per (i, k, image).
__global__ void child_gradient_any(Dims dims, const float* __restrict__ weight,
                                   const float* __restrict__ factors, float uniform,
                                   const float* __restrict__ x, bool accumulate,
                                   float* __restrict__ grad_u) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.child_dim * dims.padded) return;
  const int64_t image = thread % dims.padded, ik = thread / dims.padded;
  const int64_t i = ik / dims.child_dim, k = ik % dims.child_dim;
  float sum = 0;
  for (int64_t j = 0; j < dims.parents; ++j) {
    const int64_t ij = i * dims.parents + j;
    float back = 0;
    for (int d = 0; d < dims.parent_dim; ++d)
      back = fmaf(weight[(ij * dims.parent_dim + d) * dims.child_dim + k],
                  x[(j * dims.parent_dim + d) * dims.padded + image], back);
    sum = fmaf(factors == nullptr ? uniform : factors[ij * dims.padded + image], back, sum);
  }
  grad_u[thread] = accumulate ? grad_u[thread] + sum : sum;
}

// One thread per weight.
__global__ void weight_gradient_any(Dims dims, const float* __restrict__ u,
                                    const float* __restrict__ factors, float uniform,
                                    const float* __restrict__ x, bool accumulate,
                                    float* __restrict__ grad_weight) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t block = int64_t(dims.parent_dim) * dims.child_dim;
  const int64_t ij = thread / block;
  if (ij >= int64_t(dims.children) * dims.parents) return;
  const int64_t i = ij / dims.parents, j = ij % dims.parents;
  const int64_t d = thread % block / dims.child_dim, k = thread % dims.child_dim;
  const float* pose = u + (i * dims.child_dim + k) * dims.padded;
  const float* value = x + (j * dims.parent_dim + d) * dims.padded;
  float sum = 0;
  for (int image = 0; image < dims.batch; ++image) {
    const float factor = factors == nullptr ? uniform : factors[ij * dims.padded + image];
    sum = fmaf(factor * value[image], pose[image], sum);
  }
  grad_weight[thread] = accumulate ? grad_weight[thread] + sum : sum;
}

}  // namespace remcaps::kernels::cuda
