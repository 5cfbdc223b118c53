// How the routing kernels on CUDA walk over the blocks W_ij and compute with them.
//
// Layout: inside the passes the image is the fastest index ("lanes" layout, [..., P] with P the
// batch padded to a multiple of 4), and a warp works on 64 images, two per lane. Every lane of a
// warp then needs the same weights, which are broadcast out of shared memory, each load feeding 8
// multiply-adds.
//   u [I, D_in, P]   poses, sums, their gradients [J, D_out, P]   couplings, logits [I, J, P]
//
// The hot products are "parent stationary" (a warp stays with one parent j and walks over
// children), so that the parent's pose or sum stays in registers.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kImagesPerLane = 2;
constexpr int kTileImages = kWarp * kImagesPerLane;
constexpr int kParentWarps = 10;  // at most, of a parent stationary block
constexpr int kStages = 4;        // blocks W_ij on their way into shared memory, per warp

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

// This warp's queues, out of the block's shared memory: of one parent's blocks, children [begin,
// end), and of one child's.
template <int kBlock>
__device__ WeightQueue<kBlock> blocks_of_parent(float4* shared, const Dims& dims,
                                                const float* weight, int parent, int begin,
                                                int end) {
  return WeightQueue<kBlock>(
      reinterpret_cast<float*>(shared) + threadIdx.y * WeightQueue<kBlock>::kFloats,
      weight + (int64_t(begin) * dims.parents + parent) * kBlock, int64_t(dims.parents) * kBlock,
      end - begin);
}
template <int kBlock>
__device__ WeightQueue<kBlock> blocks_of_child(float4* shared, const Dims& dims,
                                               const float* weight, int child) {
  return WeightQueue<kBlock>(
      reinterpret_cast<float*>(shared) + threadIdx.y * WeightQueue<kBlock>::kFloats,
      weight + int64_t(child) * dims.parents * kBlock, kBlock, dims.parents);
}

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

}  // namespace remcaps::kernels::cuda
