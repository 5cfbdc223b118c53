// Device code of dynamic routing.
//
// Layout: inside the passes the image is the fastest index ("lanes" layout, [..., P] with P the
// batch padded to a multiple of 4), and a warp works on 64 images, two per lane. Every lane of a
// warp then needs the same weights, which are broadcast out of shared memory, each load feeding 8
// multiply-adds.
//   u [I, D_in, P]   poses, sums, their gradients [J, D_out, P]   couplings, logits [I, J, P]
//
// The two hot products are "parent stationary" (a warp stays with one parent j and walks over
// children), so that the parent's pose or sum stays in registers.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "remcaps/kernels/routing_problem.h"

namespace remcaps::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kImagesPerLane = 2;
constexpr int kTileImages = kWarp * kImagesPerLane;
constexpr int kStages = 4;  // blocks W_ij on their way into shared memory, per warp

struct Dims {
  int batch, padded;  // B, P
  int children, parents, child_dim, parent_dim;
};

__device__ inline float2 load2(const float* p) {
  return *reinterpret_cast<const float2*>(p);
}
__device__ inline void store2(float* p, float2 x) {
  *reinterpret_cast<float2*>(p) = x;
}
__device__ inline void fma2(float2& sum, float a, float2 b) {
  sum.x = fmaf(a, b.x, sum.x);
  sum.y = fmaf(a, b.y, sum.y);
}

// A warp's queue of blocks W_ij: kStages of them are in flight while one is worked on.
template <int kBlock>
class WeightQueue {
 public:
  // `first` is the first block, `stride` the floats from one to the next, `count` how many.
  __device__ WeightQueue(float* memory, const float* first, int64_t stride, int count)
      : memory_(memory), next_(first), stride_(stride), left_(count) {
    for (int stage = 0; stage < kStages - 1; ++stage) fetch();
  }

  // The next block, in shared memory; it stays valid until the call after.
  __device__ const float4* pop() {
    __syncwarp();  // all lanes are done with the stage that is overwritten now
    fetch();
    __pipeline_wait_prior(kStages - 1);
    __syncwarp();
    const float* block = memory_ + read_ * kBlock;
    read_ = (read_ + 1) % kStages;
    return reinterpret_cast<const float4*>(block);
  }

  static constexpr int kFloats = kStages * kBlock;  // of `memory`, 16-byte aligned

 private:
  __device__ void fetch() {
    if (left_ > 0) {
      const int lane = threadIdx.x;
      for (int x = lane * 4; x < kBlock; x += kWarp * 4)
        __pipeline_memcpy_async(memory_ + write_ * kBlock + x, next_ + x, sizeof(float4));
      next_ += stride_;
      --left_;
    }
    __pipeline_commit();
    write_ = (write_ + 1) % kStages;
  }

  float* memory_;
  const float* next_;
  int64_t stride_;
  int left_, write_ = 0, read_ = 0;
};

// Whether a block has a weight other than zero. Every lane gets the same answer.
template <int kBlock>
__device__ bool is_alive(const float4* block) {
  bool alive = false;
  for (int x = threadIdx.x; x < kBlock / 4; x += kWarp) {
    const float4 w = block[x];
    alive = alive || w.x != 0 || w.y != 0 || w.z != 0 || w.w != 0;
  }
  return __any_sync(0xffffffffU, alive) != 0;
}

// back[k] += sum_d W[d, k] x[d]
template <int kDin>
__device__ void add_transposed_row(const float4* row, float2 x, float2 (&back)[kDin]) {
#pragma unroll
  for (int k = 0; k < kDin / 4; ++k) {
    const float4 w = row[k];
    fma2(back[4 * k + 0], w.x, x);
    fma2(back[4 * k + 1], w.y, x);
    fma2(back[4 * k + 2], w.z, x);
    fma2(back[4 * k + 3], w.w, x);
  }
}

// Which warp works on what: x: chunk of children, y: block of parents (one per warp), z: image
// tile.
struct ParentTask {
  int parent, begin, end, image;
  bool has_images;
};

__device__ inline ParentTask parent_task(const Dims& dims, int chunk) {
  ParentTask task;
  task.parent = blockIdx.y * blockDim.y + threadIdx.y;
  task.begin = blockIdx.x * chunk;
  task.end = min(dims.children, task.begin + chunk);
  task.image = blockIdx.z * kTileImages + threadIdx.x * kImagesPerLane;
  task.has_images = task.image < dims.padded;
  return task;
}

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
  using Queue = WeightQueue<kBlock>;
  Queue queue(reinterpret_cast<float*>(shared) + threadIdx.y * Queue::kFloats,
              weight + (int64_t(task.begin) * dims.parents + task.parent) * kBlock,
              int64_t(dims.parents) * kBlock, task.end - task.begin);
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
  using Queue = WeightQueue<kBlock>;
  Queue queue(reinterpret_cast<float*>(shared) + threadIdx.y * Queue::kFloats,
              weight + (int64_t(task.begin) * dims.parents + task.parent) * kBlock,
              int64_t(dims.parents) * kBlock, task.end - task.begin);
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
  using Queue = WeightQueue<kBlock>;
  Queue queue(reinterpret_cast<float*>(shared) + threadIdx.y * Queue::kFloats,
              weight + int64_t(i) * dims.parents * kBlock, kBlock, dims.parents);
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

constexpr int kGradientWarps = 4;     // that share the images of a step
constexpr int kGradientImages = 128;  // per step
constexpr int kGradientPitch = kWarp + 1;

// sum += factor * values u^T
template <int kDin, int kRows>
__device__ void add_outer_product(float factor, const float4* pose, const float4* values,
                                  float (&sum)[kRows][kDin]) {
  float u[kDin];
#pragma unroll
  for (int k = 0; k < kDin / 4; ++k) {
    const float4 part = pose[k];
    u[4 * k + 0] = factor * part.x;
    u[4 * k + 1] = factor * part.y;
    u[4 * k + 2] = factor * part.z;
    u[4 * k + 3] = factor * part.w;
  }
#pragma unroll
  for (int d = 0; d < kRows / 4; ++d) {
    const float4 value = values[d];
#pragma unroll
    for (int k = 0; k < kDin; ++k) {
      sum[4 * d + 0][k] = fmaf(value.x, u[k], sum[4 * d + 0][k]);
      sum[4 * d + 1][k] = fmaf(value.y, u[k], sum[4 * d + 1][k]);
      sum[4 * d + 2][k] = fmaf(value.z, u[k], sum[4 * d + 2][k]);
      sum[4 * d + 3][k] = fmaf(value.w, u[k], sum[4 * d + 3][k]);
    }
  }
}

// grad_W_ij (+)= sum_b factors[i, j, b] x_j,b u_i,b^T. A lane stays with one child, the warps of a
// block split the images: x: 32 children, y: parent, z: kRows rows of D_out.
//   children [B, I, D_in]: here the original layout is the coalesced one.
template <int kDin, int kDout, int kRows>
__global__ void __launch_bounds__(kWarp* kGradientWarps)
    weight_gradient(Dims dims, const float* __restrict__ children,
                    const float* __restrict__ factors, float uniform, const float* __restrict__ x,
                    bool accumulate, float* __restrict__ grad_weight) {
  constexpr int kSize = kRows * kDin;  // sums per lane
  __shared__ float4 rows[kGradientImages][kRows / 4];
  __shared__ float halves[kGradientWarps / 2][kSize * kGradientPitch];
  const int lane = threadIdx.x, warp = threadIdx.y;
  const int thread = warp * kWarp + lane;
  const int i = blockIdx.x * kWarp + lane, j = blockIdx.y, row = blockIdx.z * kRows;
  const bool has_child = i < dims.children;
  constexpr int kShare = kGradientImages / kGradientWarps;

  float sum[kRows][kDin] = {};
  for (int first = 0; first < dims.batch; first += kGradientImages) {
    __syncthreads();
    for (int slot = thread; slot < kGradientImages * kRows; slot += kWarp * kGradientWarps) {
      const int image = slot % kGradientImages, d = slot / kGradientImages;
      reinterpret_cast<float*>(rows[image])[d] =
          first + image < dims.batch ? x[int64_t(j * kDout + row + d) * dims.padded + first + image]
                                     : 0.0F;
    }
    __syncthreads();
    if (!has_child) continue;
    const int end = min(dims.batch, first + (warp + 1) * kShare);
    for (int image = first + warp * kShare; image < end; image += 4) {
      const float4 factor =
          factors == nullptr ? float4{uniform, uniform, uniform, uniform}
                             : *reinterpret_cast<const float4*>(
                                   factors + (int64_t(i) * dims.parents + j) * dims.padded + image);
      const auto* pose =
          reinterpret_cast<const float4*>(children + (int64_t(image) * dims.children + i) * kDin);
      const int64_t next = int64_t(dims.children) * kDin / 4;
      const float4(*row_values)[kRows / 4] = rows + (image - first);
      add_outer_product<kDin, kRows>(factor.x, pose, row_values[0], sum);
      if (image + 1 < end)
        add_outer_product<kDin, kRows>(factor.y, pose + next, row_values[1], sum);
      if (image + 2 < end)
        add_outer_product<kDin, kRows>(factor.z, pose + 2 * next, row_values[2], sum);
      if (image + 3 < end)
        add_outer_product<kDin, kRows>(factor.w, pose + 3 * next, row_values[3], sum);
    }
  }

  // Fold the warps, half of them at a time, then write the blocks out coalesced.
  for (int half = kGradientWarps / 2; half > 0; half /= 2) {
    __syncthreads();
    if (warp >= half && warp < 2 * half)
#pragma unroll
      for (int e = 0; e < kSize; ++e)
        halves[warp - half][e * kGradientPitch + lane] = sum[e / kDin][e % kDin];
    __syncthreads();
    if (warp < half)
#pragma unroll
      for (int e = 0; e < kSize; ++e)
        sum[e / kDin][e % kDin] += halves[warp][e * kGradientPitch + lane];
  }
  __syncthreads();
  if (warp == 0)
#pragma unroll
    for (int e = 0; e < kSize; ++e) halves[0][e * kGradientPitch + lane] = sum[e / kDin][e % kDin];
  __syncthreads();
  for (int slot = thread; slot < kSize * kWarp; slot += kWarp * kGradientWarps) {
    const int e = slot % kSize, child = slot / kSize;
    if (blockIdx.x * kWarp + child >= dims.children) break;
    float* out = grad_weight +
                 (int64_t(blockIdx.x * kWarp + child) * dims.parents + j) * kDout * kDin +
                 row * kDin + e;
    const float value = halves[0][e * kGradientPitch + child];
    *out = accumulate ? *out + value : value;
  }
}

}  // namespace remcaps::kernels::cuda
