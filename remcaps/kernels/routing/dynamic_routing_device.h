// Device code of dynamic routing.
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

// partial[chunk, j] = sum over a chunk's children of factors[i, j] u^_ij (factors null: all 1).
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

// grad_u_i (+)= sum_j factors[i, j] W_ij^T x_j (factors null: all `uniform`). A warp stays with one
// child: x: block of children (one per warp), y: image tile.
template <int kDin, int kDout>
__global__ void __launch_bounds__(512)
    child_gradient(Dims dims, const float* __restrict__ weight, const float* __restrict__ factors,
                   float uniform, const float* __restrict__ x, bool accumulate,
                   float* __restrict__ grad_u) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * blockDim.y + threadIdx.y;
  if (i >= dims.children) return;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerLane;
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

}  // namespace remcaps::kernels::cuda
