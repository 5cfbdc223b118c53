// Device code of scaled-distance routing's gradients.
//
// The full gradient's way from an iteration's sums to the poses before it is three kernels: the
// couplings' gradient goes through a softmax over all parents (logit_gradient, a warp a child),
// that of the mean distance through a sum over all children (mean_over_pairs), and only then the
// poses' can be added up (pose_gradient, a warp a parent).
#pragma once

#include "remcaps/kernels/routing/scaled_distance_device.h"

namespace remcaps::kernels::cuda {

struct LogitGradientArguments {
  const float* u;
  const float* weight;
  const float* couplings;  // [I, J, P]
  const float* distances;  // [I, J, P]
  const float* grad_sums;  // dL/ds_j, [J, D_out, P]
  float* grad_logits;      // dL/db_ij, [I, J, P]
  float* totals;           // [blocks of children, P]
};

// One child: dL/dc_ij = <u'_ij, dL/ds_j> of its parents, then dL/db_ij = c (dL/dc_ij - sum_k c_ik
// dL/dc_ik) in the same place. Returns the sum of dL/db_ij d_ij. The whole warp must come.
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

// x: block of children (one per warp), y: image tile.
template <int kDin, int kDout, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp)
    logit_gradient(Dims dims, LogitGradientArguments a) {
  extern __shared__ float4 shared[];
  const int i = blockIdx.x * kWarps + threadIdx.y;
  const int image = blockIdx.y * kTileImages + threadIdx.x * kImagesPerLane;
  float2 total = {0, 0};
  if (i < dims.children) total = child_logit_gradient<kDin, kDout>(dims, a, shared, i, image);
  store_block_total<kWarps>(dims, image, total, a.totals + int64_t(blockIdx.x) * dims.padded);
}

// What becomes of the mean of dL/db_ij d_ij, which is dL/dt over the number of pairs: what the mean
// distance's gradient leaves to each distance. Nothing beyond the batch.
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
  const float* poses;       // v_j that the distances are from, [J, D_out, P]
  const float* distances;   // [I, J, P]
  const float* scales;      // t, [P]
  const float* grad_means;  // [P]
  float* pulls;             // dL/db_ij, left as e_ij, [I, J, P]
  float* partial;           // [chunks, J, D_out, P]
};

// partial[chunk, j] = sum over a chunk's children of e_ij (v_j - u'_ij): dL/dv_j. Grid and block
// are those of clamped_sums.
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

// What the iterations after the first add to the full gradient of a vote, one behind the other:
//   dL/du'_ij += c_ij dL/ds_j + e_ij (u'_ij - v_j), v_j of the iteration before
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
  const float* couplings;  // [I, J, P], or null: all `uniform`
  float uniform;
  const float* grad_sums;         // dL/ds_j, [J, D_out, P]
  LaterIterations later;          // of kFull only; what stands above is the first iteration then
  float* grad_u;                  // [I, D_in, P]
  float *factors, *vote_factors;  // [I, J, P], or null: not wanted
};

// x = coupling x + what later iterations add, but for that along the vote, whose factor it returns.
//   pair, row: of this parent in arrays [I, J, P] and [J, D_out, P]
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

// Back through the clamp, of one image: dL/du'_ij = x + pull u'_ij.
struct ClampGradient {
  float vote_factor, grad_length;
};
__device__ inline ClampGradient clamp_gradient(float vote2, float child2, float factor, float along,
                                               float pull) {
  if (!(vote2 > child2)) return {-pull, 0.0F};
  const float moved = factor * along;
  return {moved / vote2, fmaf(pull, child2, moved)};
}

// A vote's gradient taken back through the clamp, out of dL/du'_ij = c x + e u'_ij (c dL/ds_j, and
// in the full gradient what add_later_iterations makes of it): where the clamp shortens, what lies
// along the vote goes to the child's length instead,
//   dL/du^_ij = c f (x - a u^_ij),  a = <u^_ij, x> / ||u^_ij||^2; where f = 1: c x + e u^_ij
//   dL/d||u_i|| = sum_j (c f <u^_ij, x> + e ||u_i||^2) / ||u_i||
// Leaves factors = c f (of x; f alone in the full gradient) and vote_factors = c f a or -e for the
// weights' gradient. A warp stays with one child: x: block of children (one per warp), y: image
// tile. Two blocks are to fit a multiprocessor where that costs no registers it needs.
template <int kDin, int kDout, int kWarps, bool kFull>
__global__ void __launch_bounds__(kWarps* kWarp, kDout <= 8 ? 2 : 1)
    vote_gradient(Dims dims, VoteGradientArguments a) {
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
      // The weights are read from shared memory again: kept, they would take kBlock registers.
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
