// Device code of scaled-distance routing. Votes are computed where they are needed, together with
// the factor that shortens them to their child's length: u'_ij = f_ij u^_ij.
//
// The full gradient goes from an iteration's sums to the poses before it in three kernels. The
// couplings' gradient passes a softmax over all parents (logit_gradient, one warp per child). The
// gradient of the mean distance passes a sum over all children (mean_over_pairs). After that the
// poses' gradient can be summed (pose_gradient, one warp per parent).
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

// Loads [kSize, P] for two images.
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

// sum += coupling u'_ij, where the child's pose begins at `u`.
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

// partial[chunk, j] = sum over a chunk's children of couplings[i, j] u'_ij (couplings null: all are
// 1).
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

// out[P] = the sum of the warps' totals for each image; 0 for the images that pad the batch. All
// warps of the block must call it.
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

// distances[i, j] = ||v_j - u'_ij||, and totals[chunk, block of parents, P], their sums over the
// children and parents of a block; 0 for the images that pad the batch.
template <int kDin, int kDout>
__global__ void __launch_bounds__(kParentWarps* kWarp)
    vote_distances(Dims dims, int chunk, const float* __restrict__ u,
                   const float* __restrict__ weight, const float* __restrict__ poses,
                   float* __restrict__ distances, float* __restrict__ totals) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const ParentTask task = parent_task(dims, chunk);
  const bool has_parent = task.parent < dims.parents;  // all warps are needed at the end
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
    float2 distance = length;  // to a vote of 0
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

// From the mean distance to the logits' scale t of an image.
struct ScaleOfMean {
  float log_odds;
  __device__ float operator()(float mean, int) const { return distance_scale(mean, log_odds); }
};

constexpr int kScaleRows = 32;

// out[P] = of_mean(mean, image), where the mean over all pairs (i, j) is that of the image or of
// the batch. It is computed from totals [rows, P]. One block of 32 x kScaleRows threads.
template <bool kPerImage, typename OfMean>
__global__ void __launch_bounds__(kWarp* kScaleRows)
    mean_over_pairs(Dims dims, int rows, OfMean of_mean, const float* __restrict__ totals,
                    float* __restrict__ out) {
  __shared__ float shared[kScaleRows][kWarp];
  const int in_warp = threadIdx.x, row = threadIdx.y;
  const float pairs = float(dims.children) * float(dims.parents);
  float batch_total = 0;  // of the images of this thread; in row 0
  for (int first = 0; first < dims.padded; first += kWarp) {
    const int image = first + in_warp;
    float total = 0;
#pragma unroll 4
    for (int r = row; image < dims.padded && r < rows; r += kScaleRows)
      total += totals[int64_t(r) * dims.padded + image];
    __syncthreads();
    shared[row][in_warp] = total;
    __syncthreads();
    if (row > 0) continue;
    total = 0;
#pragma unroll
    for (int r = 0; r < kScaleRows; ++r) total += shared[r][in_warp];
    batch_total += total;
    if (kPerImage && image < dims.padded) out[image] = of_mean(total / pairs, image);
  }
  if constexpr (!kPerImage) {
    if (row > 0) return;
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      batch_total += __shfl_xor_sync(0xffffffffU, batch_total, offset);
    const float mean = batch_total / (float(dims.batch) * pairs);
    for (int image = in_warp; image < dims.padded; image += kWarp)
      out[image] = of_mean(mean, image);
  }
}

struct LogitGradientArguments {
  const float* u;
  const float* weight;
  const float* couplings;  // [I, J, P]
  const float* distances;  // [I, J, P]
  const float* grad_sums;  // dL/ds_j, [J, D_out, P]
  float* grad_logits;      // dL/db_ij, [I, J, P]
  float* totals;           // [blocks of children, P]
};

// For one child and all parents: dL/dc_ij = <u'_ij, dL/ds_j>, then in the same array
// dL/db_ij = c_ij (dL/dc_ij - sum_k c_ik dL/dc_ik). Returns the sum of dL/db_ij d_ij. The whole
// warp must call it.
template <int kDin, int kDout>
__device__ float2 child_logit_gradient(const Dims& dims, const LogitGradientArguments& a,
                                       float4* shared, int i, int image) {
  constexpr int kBlock = kDin * kDout;
  const bool has_images = image < dims.padded;
  auto queue = blocks_of_child<kBlock>(shared, dims, a.weight, i);
  float2 child[kDin] = {};
  if (has_images) load_row<kDin>(a.u + int64_t(i) * kDin * dims.padded + image, dims.padded, child);
  const float2 child2 = squared_length<kDin>(child);
  const int64_t row = int64_t(i) * dims.parents * dims.padded + image;
  float2 mean = {0, 0}, total = {0, 0};
  for (int j = 0; j < dims.parents; ++j) {
    const float4* w = queue.pop();
    const bool alive = is_alive<kBlock>(w);
    if (!has_images) continue;
    const int64_t pair = row + int64_t(j) * dims.padded;
    float2 grad_coupling = {0, 0};
    if (alive) {
      float2 vote[kDout], x[kDout];
      make_vote<kDin, kDout>(w, child, vote);
      load_row<kDout>(a.grad_sums + int64_t(j) * kDout * dims.padded + image, dims.padded, x);
      const float2 factor = clamp_factors(squared_length<kDout>(vote), child2);
      const float2 along = inner_product<kDout>(vote, x);
      grad_coupling = {factor.x * along.x, factor.y * along.y};
    }
    const float2 c = load2(a.couplings + pair);
    mean.x = fmaf(c.x, grad_coupling.x, mean.x);
    mean.y = fmaf(c.y, grad_coupling.y, mean.y);
    store2(a.grad_logits + pair, grad_coupling);
  }
  for (int j = 0; j < dims.parents && has_images; ++j) {
    const int64_t pair = row + int64_t(j) * dims.padded;
    const float2 c = load2(a.couplings + pair), distance = load2(a.distances + pair);
    float2 grad = load2(a.grad_logits + pair);
    grad = {c.x * (grad.x - mean.x), c.y * (grad.y - mean.y)};
    store2(a.grad_logits + pair, grad);
    total.x = fmaf(grad.x, distance.x, total.x);
    total.y = fmaf(grad.y, distance.y, total.y);
  }
  return total;
}

// The grid is
//   x  block of children, one per warp
//   y  tile of images
template <int kDin, int kDout, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    logit_gradient(Dims dims, LogitGradientArguments a) {
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * kWarps + threadIdx.y;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerThread;
  float2 total = {0, 0};
  if (i < dims.children) total = child_logit_gradient<kDin, kDout>(dims, a, shared, i, image);
  store_block_total<kWarps>(dims, image, total, a.totals + int64_t(blockIdx.x) * dims.padded);
}

// From the mean of dL/db_ij d_ij, which is dL/dt divided by the number of pairs, to the share that
// each distance has in the gradient of the mean distance. 0 for the images that pad the batch.
struct GradientOfMean {
  float log_odds;
  int batch;
  const float* scales;  // t, [P]
  __device__ float operator()(float mean, int image) const {
    return image < batch ? mean * distance_scale_slope(scales[image], log_odds) : 0.0F;
  }
};

struct PoseGradientArguments {
  const float* u;
  const float* weight;
  const float* poses;       // v_j that the distances were measured from, [J, D_out, P]
  const float* distances;   // [I, J, P]
  const float* scales;      // t, [P]
  const float* grad_means;  // [P]
  float* pulls;             // in: dL/db_ij, out: e_ij, [I, J, P]
  float* partial;           // [chunks, J, D_out, P]
};

// partial[chunk, j] = sum over a chunk's children of e_ij (v_j - u'_ij): dL/dv_j. Grid and block
// as for clamped_sums.
template <int kDin, int kDout>
__global__ void __launch_bounds__(kParentWarps* kWarp)
    pose_gradient(Dims dims, int chunk, PoseGradientArguments a) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const ParentTask task = parent_task(dims, chunk);
  if (task.parent >= dims.parents) return;
  auto queue = blocks_of_parent<kBlock>(shared, dims, a.weight, task.parent, task.begin, task.end);
  float2 scale = {0, 0}, grad_mean = {0, 0};
  if (task.has_images) {
    scale = load2(a.scales + task.image);
    grad_mean = load2(a.grad_means + task.image);
  }
  float2 total_pull = {0, 0}, sum[kDout] = {};
  for (int i = task.begin; i < task.end; ++i) {
    const float4* w = queue.pop();
    const bool alive = is_alive<kBlock>(w);
    if (!task.has_images) continue;
    const int64_t pair = (int64_t(i) * dims.parents + task.parent) * dims.padded + task.image;
    const float2 grad_logit = load2(a.pulls + pair), distance = load2(a.distances + pair);
    const float2 pull = {distance_pull(scale.x, grad_logit.x, grad_mean.x, distance.x),
                         distance_pull(scale.y, grad_logit.y, grad_mean.y, distance.y)};
    store2(a.pulls + pair, pull);
    total_pull.x += pull.x;
    total_pull.y += pull.y;
    if (alive)
      add_clamped_vote<kDin, kDout>(w, a.u + int64_t(i) * kDin * dims.padded + task.image,
                                    dims.padded, pull, sum);
  }
  if (!task.has_images) return;
  const int64_t row = int64_t(task.parent) * kDout * dims.padded + task.image;
  float* out = a.partial + int64_t(blockIdx.x) * dims.parents * kDout * dims.padded + row;
#pragma unroll
  for (int d = 0; d < kDout; ++d) {
    const int64_t at = int64_t(d) * dims.padded;
    const float2 pose = load2(a.poses + row + at);
    store2(out + at,
           {fmaf(total_pull.x, pose.x, -sum[d].x), fmaf(total_pull.y, pose.y, -sum[d].y)});
  }
}

// What the iterations after the first add to the full gradient of a vote:
//   dL/du'_ij += c_ij dL/ds_j + e_ij (u'_ij - v_j), with v_j of the iteration before
// The arrays of the iterations follow each other.
struct LaterIterations {
  int count;
  const float* couplings;  // [count, I, J, P]
  const float* pulls;      // e_ij, [count, I, J, P]
  const float* grad_sums;  // [count, J, D_out, P]
  const float* poses;      // [count, J, D_out, P]
};

struct VoteGradientArguments {
  const float* u;
  const float* weight;
  const float* couplings;  // [I, J, P]; null: all are `uniform`
  float uniform;
  const float* grad_sums;         // dL/ds_j, [J, D_out, P]
  LaterIterations later;          // only with kFull; the fields above are the first iteration then
  float* grad_u;                  // [I, D_in, P]
  float *factors, *vote_factors;  // [I, J, P]; null: not wanted
};

// x = coupling x + what the later iterations add, without the part along the vote. Returns the
// factor of that part.
//   pair, row  offsets of this parent in arrays [I, J, P] and [J, D_out, P]
template <int kDout>
__device__ float2 add_later_iterations(const Dims& dims, const LaterIterations& later, int64_t pair,
                                       int64_t row, float2 coupling, float2 (&x)[kDout]) {
#pragma unroll
  for (int d = 0; d < kDout; ++d) x[d] = {coupling.x * x[d].x, coupling.y * x[d].y};
  const int64_t pairs = int64_t(dims.children) * dims.parents * dims.padded;
  const int64_t rows = int64_t(dims.parents) * kDout * dims.padded;
  float2 total_pull = {0, 0};
  for (int t = 0; t < later.count; ++t, pair += pairs, row += rows) {
    const float2 c = load2(later.couplings + pair), pull = load2(later.pulls + pair);
    total_pull.x += pull.x;
    total_pull.y += pull.y;
#pragma unroll
    for (int d = 0; d < kDout; ++d) {
      const float2 grad_sum = load2(later.grad_sums + row + int64_t(d) * dims.padded);
      const float2 pose = load2(later.poses + row + int64_t(d) * dims.padded);
      x[d].x = fmaf(c.x, grad_sum.x, fmaf(-pull.x, pose.x, x[d].x));
      x[d].y = fmaf(c.y, grad_sum.y, fmaf(-pull.y, pose.y, x[d].y));
    }
  }
  return total_pull;
}

// Back through the clamp, for one image: dL/du'_ij = x + pull u'_ij.
struct ClampGradient {
  float vote_factor, grad_length;
};
__device__ inline ClampGradient clamp_gradient(float vote2, float child2, float factor, float along,
                                               float pull) {
  if (!(vote2 > child2)) return {-pull, 0.0F};
  const float moved = factor * along;
  return {moved / vote2, fmaf(pull, child2, moved)};
}

// Takes a vote's gradient back through the clamp. It starts from dL/du'_ij = c x + e u'_ij, where x
// is dL/ds_j, or in the full gradient what add_later_iterations() returns. If the clamp shortens
// the vote, the part along the vote goes to the child's length instead:
//   dL/du^_ij = c f (x - a u^_ij),  a = <u^_ij, x> / ||u^_ij||^2
//   dL/d||u_i|| = sum_j (c f <u^_ij, x> + e ||u_i||^2) / ||u_i||
// If f = 1, dL/du^_ij = c x + e u^_ij.
// Writes what the weights' gradient needs: factors = c f, of x (f alone in the full gradient), and
// vote_factors = c f a or -e. A warp stays with one child. The grid is
//   x  block of children, one per warp
//   y  tile of images
// Two blocks should fit on a multiprocessor if that costs no registers the kernel needs.
template <int kDin, int kDout, int kWarps, bool kFull>
__global__ void __launch_bounds__(kWarps* kWarp, kDout <= 8 ? 2 : 1)
    vote_gradient(Dims dims, VoteGradientArguments a) {
  constexpr int kBlock = kDin * kDout;
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * kWarps + threadIdx.y;
  if (i >= dims.children) return;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerThread;
  const bool has_images = image < dims.padded;
  auto queue = blocks_of_child<kBlock>(shared, dims, a.weight, i);
  float2 child[kDin] = {}, grad[kDin] = {};
  const int64_t row = int64_t(i) * kDin * dims.padded + image;
  if (has_images) load_row<kDin>(a.u + row, dims.padded, child);
  const float2 child2 = squared_length<kDin>(child);
  float2 grad_length = {0, 0};  // multiplied by the child's length
  for (int j = 0; j < dims.parents; ++j) {
    const float4* w = queue.pop();
    const bool alive = is_alive<kBlock>(w);
    if (!has_images) continue;
    const int64_t pair = (int64_t(i) * dims.parents + j) * dims.padded + image;
    float2 factor = {a.uniform, a.uniform}, vote_factor = {0, 0};
    if (a.couplings != nullptr) factor = load2(a.couplings + pair);
    if (alive) {
      float2 vote[kDout], x[kDout], pull = {0, 0};
      const int64_t pose_row = int64_t(j) * kDout * dims.padded + image;
      load_row<kDout>(a.grad_sums + pose_row, dims.padded, x);
      if constexpr (kFull) {
        pull = add_later_iterations<kDout>(dims, a.later, pair, pose_row, factor, x);
        factor = {1, 1};
      }
      make_vote<kDin, kDout>(w, child, vote);
      const float2 vote2 = squared_length<kDout>(vote), along = inner_product<kDout>(vote, x);
      const float2 clamp = clamp_factors(vote2, child2);
      factor.x *= clamp.x;
      factor.y *= clamp.y;
      const ClampGradient of_x = clamp_gradient(vote2.x, child2.x, factor.x, along.x, pull.x);
      const ClampGradient of_y = clamp_gradient(vote2.y, child2.y, factor.y, along.y, pull.y);
      vote_factor = {of_x.vote_factor, of_y.vote_factor};
      grad_length.x += of_x.grad_length;
      grad_length.y += of_y.grad_length;
      // Read the weights from shared memory again: keeping them would take kBlock registers.
      asm volatile("" ::: "memory");
#pragma unroll
      for (int d = 0; d < kDout; ++d) {
        const float2 value = {fmaf(factor.x, x[d].x, -vote_factor.x * vote[d].x),
                              fmaf(factor.y, x[d].y, -vote_factor.y * vote[d].y)};
        add_transposed_row<kDin>(w + d * kDin / 4, value, grad);
      }
    } else if (kFull) {
      factor = {1, 1};
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
