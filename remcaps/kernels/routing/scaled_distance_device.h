// Device code of scaled-distance routing. Votes are made where they are needed, together with the
// factor that shortens them to their child's length: u'_ij = f_ij u^_ij.
#pragma once

#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {

template <int kSize>
__device__ float2 inner_product(const float2 (&a)[kSize], const float2 (&b)[kSize]) {
  float2 sum = {0, 0};
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    sum.x = fmaf(a[k].x, b[k].x, sum.x);
    sum.y = fmaf(a[k].y, b[k].y, sum.y);
  }
  return sum;
}

template <int kSize>
__device__ float2 squared_length(const float2 (&x)[kSize]) {
  return inner_product<kSize>(x, x);
}

// A row [kSize, P] of two images.
template <int kSize>
__device__ void load_row(const float* from, int padded, float2 (&x)[kSize]) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) x[k] = load2(from + int64_t(k) * padded);
}

template <int kDin, int kDout>
__device__ void make_vote(const float4* w, const float2 (&child)[kDin], float2 (&vote)[kDout]) {
#pragma unroll
  for (int d = 0; d < kDout; ++d) {
    vote[d] = {0, 0};
#pragma unroll
    for (int k = 0; k < kDin / 4; ++k) {
      const float4 row = w[d * (kDin / 4) + k];
      fma2(vote[d], row.x, child[4 * k + 0]);
      fma2(vote[d], row.y, child[4 * k + 1]);
      fma2(vote[d], row.z, child[4 * k + 2]);
      fma2(vote[d], row.w, child[4 * k + 3]);
    }
  }
}

__device__ inline float2 clamp_factors(float2 vote2, float2 child2) {
  return {clamp_factor(vote2.x, child2.x), clamp_factor(vote2.y, child2.y)};
}

// sum += coupling u'_ij, of the child whose row begins at `u`.
template <int kDin, int kDout>
__device__ void add_clamped_vote(const float4* w, const float* u, int padded, float2 coupling,
                                 float2 (&sum)[kDout]) {
  float2 child[kDin], vote[kDout];
  load_row<kDin>(u, padded, child);
  make_vote<kDin, kDout>(w, child, vote);
  float2 factor = clamp_factors(squared_length<kDout>(vote), squared_length<kDin>(child));
  factor.x *= coupling.x;
  factor.y *= coupling.y;
#pragma unroll
  for (int d = 0; d < kDout; ++d) {
    sum[d].x = fmaf(factor.x, vote[d].x, sum[d].x);
    sum[d].y = fmaf(factor.y, vote[d].y, sum[d].y);
  }
}

// partial[chunk, j] = sum over a chunk's children of couplings[i, j] u'_ij (couplings null: all 1).
template <int kDin, int kDout>
__global__ void __launch_bounds__(kParentWarps* kWarp)
    clamped_sums(Dims dims, int chunk, const float* __restrict__ u,
                 const float* __restrict__ weight, const float* __restrict__ couplings,
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
    float2 coupling = {1, 1};
    if (couplings != nullptr)
      coupling =
          load2(couplings + (int64_t(i) * dims.parents + task.parent) * dims.padded + task.image);
    add_clamped_vote<kDin, kDout>(w, u + int64_t(i) * kDin * dims.padded + task.image, dims.padded,
                                  coupling, sum);
  }
  if (!task.has_images) return;
  float* out = partial + (int64_t(blockIdx.x) * dims.parents + task.parent) * kDout * dims.padded +
               task.image;
#pragma unroll
  for (int d = 0; d < kDout; ++d) store2(out + int64_t(d) * dims.padded, sum[d]);
}

// out[P] = the sum of what a block's warps have for each image; 0 for those that pad the batch.
// Every warp must come.
template <int kWarps>
__device__ void store_block_total(const Dims& dims, int image, float2 total, float* out) {
  __shared__ float2 warp_totals[kWarps][kWarp];
  warp_totals[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || image >= dims.padded) return;
  for (int warp = 1; warp < int(blockDim.y); ++warp) {
    total.x += warp_totals[warp][threadIdx.x].x;
    total.y += warp_totals[warp][threadIdx.x].y;
  }
  if (image >= dims.batch) total.x = 0;
  if (image + 1 >= dims.batch) total.y = 0;
  store2(out + image, total);
}

// distances[i, j] = ||v_j - u'_ij||, and totals[chunk, block of parents, P], their sums over a
// block's children and parents; 0 for the images that pad the batch.
template <int kDin, int kDout>
__global__ void __launch_bounds__(kParentWarps* kWarp)
    vote_distances(Dims dims, int chunk, const float* __restrict__ u,
                   const float* __restrict__ weight, const float* __restrict__ poses,
                   float* __restrict__ distances, float* __restrict__ totals) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const ParentTask task = parent_task(dims, chunk);
  const bool has_parent = task.parent < dims.parents;  // all warps meet at the end
  const int parent = has_parent ? task.parent : 0, end = has_parent ? task.end : task.begin;
  auto queue = blocks_of_parent<kBlock>(shared, dims, weight, parent, task.begin, end);
  float2 pose[kDout] = {};
  if (task.has_images)
    load_row<kDout>(poses + int64_t(parent) * kDout * dims.padded + task.image, dims.padded, pose);
  const float2 pose2 = squared_length<kDout>(pose);
  const float2 length = {sqrtf(pose2.x), sqrtf(pose2.y)};
  float2 total = {0, 0};
  for (int i = task.begin; i < end; ++i) {
    const float4* w = queue.pop();
    const bool alive = is_alive<kBlock>(w);
    if (!task.has_images) continue;
    float2 distance = length;  // from a vote of 0
    if (alive) {
      float2 child[kDin], vote[kDout];
      load_row<kDin>(u + int64_t(i) * kDin * dims.padded + task.image, dims.padded, child);
      make_vote<kDin, kDout>(w, child, vote);
      const float2 factor = clamp_factors(squared_length<kDout>(vote), squared_length<kDin>(child));
#pragma unroll
      for (int d = 0; d < kDout; ++d) {
        vote[d].x = fmaf(-factor.x, vote[d].x, pose[d].x);
        vote[d].y = fmaf(-factor.y, vote[d].y, pose[d].y);
      }
      const float2 distance2 = squared_length<kDout>(vote);
      distance = {sqrtf(distance2.x), sqrtf(distance2.y)};
    }
    total.x += distance.x;
    total.y += distance.y;
    store2(distances + (int64_t(i) * dims.parents + parent) * dims.padded + task.image, distance);
  }
  store_block_total<kParentWarps>(
      dims, task.image, total,
      totals + (int64_t(blockIdx.x) * gridDim.y + blockIdx.y) * dims.padded);
}

// What becomes of the mean distance: the logits' t of an image.
struct ScaleOfMean {
  float log_odds;
  __device__ float operator()(float mean, int) const { return distance_scale(mean, log_odds); }
};

constexpr int kScaleRows = 32;

// out[P] = of_mean(mean over the pairs of each image, or of the batch; image), out of totals
// [rows, P]. One block of 32 x kScaleRows.
template <bool kPerImage, typename OfMean>
__global__ void __launch_bounds__(kWarp* kScaleRows)
    mean_over_pairs(Dims dims, int rows, OfMean of_mean, const float* __restrict__ totals,
                    float* __restrict__ out) {
  __shared__ float shared[kScaleRows][kWarp];
  const int lane = threadIdx.x, row = threadIdx.y;
  const float pairs = float(dims.children) * float(dims.parents);
  float batch_total = 0;  // of the images of this lane; in row 0
  for (int first = 0; first < dims.padded; first += kWarp) {
    const int image = first + lane;
    float total = 0;
#pragma unroll 4
    for (int r = row; image < dims.padded && r < rows; r += kScaleRows)
      total += totals[int64_t(r) * dims.padded + image];
    __syncthreads();
    shared[row][lane] = total;
    __syncthreads();
    if (row > 0) continue;
    total = 0;
#pragma unroll
    for (int r = 0; r < kScaleRows; ++r) total += shared[r][lane];
    batch_total += total;
    if (kPerImage && image < dims.padded) out[image] = of_mean(total / pairs, image);
  }
  if constexpr (!kPerImage) {
    if (row > 0) return;
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      batch_total += __shfl_xor_sync(0xffffffffU, batch_total, offset);
    const float mean = batch_total / (float(dims.batch) * pairs);
    for (int image = lane; image < dims.padded; image += kWarp) out[image] = of_mean(mean, image);
  }
}

}  // namespace remcaps::kernels::cuda
