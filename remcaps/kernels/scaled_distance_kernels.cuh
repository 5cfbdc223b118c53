// Device code of scaled-distance routing. Votes are made where they are needed, together with the
// factor that shortens them to their child's length: u'_ij = f_ij u^_ij.
#pragma once

#include "remcaps/kernels/host_device.h"
#include "remcaps/kernels/routing_votes.cuh"

namespace remcaps::kernels::cuda {

template <int kSize>
__device__ float2 squared_length(const float2 (&x)[kSize]) {
  float2 sum = {0, 0};
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    sum.x = fmaf(x[k].x, x[k].x, sum.x);
    sum.y = fmaf(x[k].y, x[k].y, sum.y);
  }
  return sum;
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
    float2 child[kDin], vote[kDout];
    load_row<kDin>(u + int64_t(i) * kDin * dims.padded + task.image, dims.padded, child);
    make_vote<kDin, kDout>(w, child, vote);
    float2 factor = clamp_factors(squared_length<kDout>(vote), squared_length<kDin>(child));
    if (couplings != nullptr) {
      const float2 coupling =
          load2(couplings + (int64_t(i) * dims.parents + task.parent) * dims.padded + task.image);
      factor.x *= coupling.x;
      factor.y *= coupling.y;
    }
#pragma unroll
    for (int d = 0; d < kDout; ++d) {
      sum[d].x = fmaf(factor.x, vote[d].x, sum[d].x);
      sum[d].y = fmaf(factor.y, vote[d].y, sum[d].y);
    }
  }
  if (!task.has_images) return;
  float* out = partial + (int64_t(blockIdx.x) * dims.parents + task.parent) * kDout * dims.padded +
               task.image;
#pragma unroll
  for (int d = 0; d < kDout; ++d) store2(out + int64_t(d) * dims.padded, sum[d]);
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
  __shared__ float2 warp_totals[kParentWarps][kWarp];
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
  warp_totals[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y > 0 || !task.has_images) return;
  for (int warp = 1; warp < int(blockDim.y); ++warp) {
    total.x += warp_totals[warp][threadIdx.x].x;
    total.y += warp_totals[warp][threadIdx.x].y;
  }
  if (task.image >= dims.batch) total.x = 0;
  if (task.image + 1 >= dims.batch) total.y = 0;
  store2(totals + (int64_t(blockIdx.x) * gridDim.y + blockIdx.y) * dims.padded + task.image, total);
}

constexpr int kScaleRows = 32;

// scales[P] = the logits' t of each image, out of totals [rows, P]. One block of 32 x kScaleRows.
template <bool kPerImage>
__global__ void __launch_bounds__(kWarp* kScaleRows)
    distance_scales(Dims dims, int rows, float log_odds, const float* __restrict__ totals,
                    float* __restrict__ scales) {
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
    if (kPerImage && image < dims.padded) scales[image] = distance_scale(total / pairs, log_odds);
  }
  if constexpr (!kPerImage) {
    if (row > 0) return;
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      batch_total += __shfl_xor_sync(0xffffffffU, batch_total, offset);
    const float scale = distance_scale(batch_total / (float(dims.batch) * pairs), log_odds);
    for (int image = lane; image < dims.padded; image += kWarp) scales[image] = scale;
  }
}

struct VoteGradientArguments {
  const float* u;
  const float* weight;
  const float* couplings;  // [I, J, P], or null: all `uniform`
  float uniform;
  const float* grad_sums;         // dL/ds_j, [J, D_out, P]
  float* grad_u;                  // [I, D_in, P]
  float *factors, *vote_factors;  // [I, J, P], or null: not wanted
};

// A vote's gradient is c_ij dL/ds_j taken back through the clamp: where that shortens, what lies
// along the vote goes to the child's length instead,
//   dL/du^_ij = c f (dL/ds_j - a u^_ij),  a = <u^_ij, dL/ds_j> / ||u^_ij||^2 (0 where f = 1)
//   dL/d||u_i|| = sum_j c f <u^_ij, dL/ds_j> / ||u_i||
// Leaves factors = c f and vote_factors = c f a for the weights' gradient. A warp stays with one
// child: x: block of children (one per warp), y: image tile.
template <int kDin, int kDout, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) vote_gradient(Dims dims, VoteGradientArguments a) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * kWarps + threadIdx.y;
  if (i >= dims.children) return;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerLane;
  const bool has_images = image < dims.padded;
  auto queue = blocks_of_child<kBlock>(shared, dims, a.weight, i);
  float2 child[kDin] = {}, grad[kDin] = {};
  const int64_t row = int64_t(i) * kDin * dims.padded + image;
  if (has_images) load_row<kDin>(a.u + row, dims.padded, child);
  const float2 child2 = squared_length<kDin>(child);
  float2 grad_length = {0, 0};  // times the child's length
  for (int j = 0; j < dims.parents; ++j) {
    const float4* w = queue.pop();
    const bool alive = is_alive<kBlock>(w);
    if (!has_images) continue;
    const int64_t pair = (int64_t(i) * dims.parents + j) * dims.padded + image;
    float2 factor = {a.uniform, a.uniform}, vote_factor = {0, 0};
    if (a.couplings != nullptr) factor = load2(a.couplings + pair);
    if (alive) {
      float2 vote[kDout], x[kDout];
      make_vote<kDin, kDout>(w, child, vote);
      load_row<kDout>(a.grad_sums + int64_t(j) * kDout * dims.padded + image, dims.padded, x);
      const float2 vote2 = squared_length<kDout>(vote);
      float2 along = {0, 0};
#pragma unroll
      for (int d = 0; d < kDout; ++d) {
        along.x = fmaf(vote[d].x, x[d].x, along.x);
        along.y = fmaf(vote[d].y, x[d].y, along.y);
      }
      const float2 clamp = clamp_factors(vote2, child2);
      factor.x *= clamp.x;
      factor.y *= clamp.y;
      if (vote2.x > child2.x) {
        grad_length.x = fmaf(factor.x, along.x, grad_length.x);
        vote_factor.x = factor.x * along.x / vote2.x;
      }
      if (vote2.y > child2.y) {
        grad_length.y = fmaf(factor.y, along.y, grad_length.y);
        vote_factor.y = factor.y * along.y / vote2.y;
      }
      // The weights are read from shared memory again: kept, they would take kBlock registers.
      asm volatile("" ::: "memory");
#pragma unroll
      for (int d = 0; d < kDout; ++d) {
        const float2 value = {fmaf(factor.x, x[d].x, -vote_factor.x * vote[d].x),
                              fmaf(factor.y, x[d].y, -vote_factor.y * vote[d].y)};
        add_transposed_row<kDin>(w + d * kDin / 4, value, grad);
      }
    }
    if (a.factors == nullptr) continue;
    store2(a.factors + pair, factor);
    store2(a.vote_factors + pair, vote_factor);
  }
  if (!has_images) return;
  // The length's gradient points along the child; a child of length 0 has none.
  const float2 stretch = {child2.x > 0 ? grad_length.x / child2.x : 0.0F,
                          child2.y > 0 ? grad_length.y / child2.y : 0.0F};
#pragma unroll
  for (int k = 0; k < kDin; ++k)
    store2(a.grad_u + row + int64_t(k) * dims.padded,
           {fmaf(stretch.x, child[k].x, grad[k].x), fmaf(stretch.y, child[k].y, grad[k].y)});
}

}  // namespace remcaps::kernels::cuda
