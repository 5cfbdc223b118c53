// Device code that dynamic and scaled-distance routing share: how kernels walk over the blocks W_ij
// and compute votes, and how a problem is cut into blocks of threads.
//
// Arrays are in image-last layout (steps.h). A warp works on 64 images, two per thread. All threads
// of a warp then need the same weights. These are broadcast from shared memory, and each load feeds
// 8 multiply-adds.
//
// The most expensive kernels are "parent stationary": a warp stays with one parent j and walks over
// the children, so that the parent's pose or sum stays in registers.
#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "remcaps/kernels/routing/steps.h"

namespace remcaps::kernels::cuda {

constexpr int kWarp = 32;
constexpr int kImagesPerThread = 2;
constexpr int kTileImages = kWarp * kImagesPerThread;
constexpr int kParentWarps = 10;  // at most, in a block of a parent-stationary kernel
constexpr int kStages = 4;        // blocks W_ij being loaded into shared memory, per warp

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

// A warp's queue of blocks W_ij: kStages of them are being loaded while one is in use.
template <int kBlock>
class WeightQueue {
 public:
  // `count` blocks from `first` on, `stride` floats apart.
  __device__ WeightQueue(float* memory, const float* first, int64_t stride, int count)
      : memory_(memory), next_(first), stride_(stride), left_(count) {
    for (int stage = 0; stage < kStages - 1; ++stage) fetch();
  }

  // The next block, in shared memory. It stays valid until the next call.
  __device__ const float4* pop() {
    __syncwarp();  // all threads are done with the stage that is overwritten now
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
      const int thread = threadIdx.x;
      for (int x = thread * 4; x < kBlock; x += kWarp * 4)
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

// This warp's queue in the block's shared memory: the blocks W_ij of one parent and the children
// begin..end, or of one child and all parents.
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

// Whether a block has a weight other than zero. Every thread gets the same answer.
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

// What a warp of a parent-stationary kernel works on. The grid is
//   x  chunk of children
//   y  block of parents, one per warp
//   z  tile of images
struct ParentTask {
  int parent, begin, end, image;
  bool has_images;
};

__device__ inline ParentTask parent_task(const Dims& dims, int chunk) {
  ParentTask task;
  task.parent = blockIdx.y * blockDim.y + threadIdx.y;
  task.begin = blockIdx.x * chunk;
  task.end = min(dims.children, task.begin + chunk);
  task.image = blockIdx.z * kTileImages + threadIdx.x * kImagesPerThread;
  task.has_images = task.image < dims.padded;
  return task;
}

// How a problem is cut into blocks. The cut depends on the shape alone, so that results are the
// same on any GPU.
struct Plan {
  explicit Plan(const RoutingShape& shape)
      : dims{static_cast<int>(shape.batch),     static_cast<int>((shape.batch + 3) / 4 * 4),
             static_cast<int>(shape.children),  static_cast<int>(shape.parents),
             static_cast<int>(shape.child_dim), static_cast<int>(shape.parent_dim)} {
    // One warp per parent. 264 blocks of ten warps fill the 132 multiprocessors of an H200 twice.
    parent_blocks = (dims.parents + kParentWarps - 1) / kParentWarps;
    warps = (dims.parents + parent_blocks - 1) / parent_blocks;
    tiles = (dims.padded + kTileImages - 1) / kTileImages;
    const int wanted = std::max(1, 264 / (parent_blocks * tiles));
    chunk = (dims.children + wanted - 1) / wanted;
    chunks = (dims.children + chunk - 1) / chunk;
  }

  int64_t child_floats() const { return int64_t(dims.children) * dims.child_dim * dims.padded; }
  int64_t pose_floats() const { return int64_t(dims.parents) * dims.parent_dim * dims.padded; }
  int64_t coupling_floats() const { return int64_t(dims.children) * dims.parents * dims.padded; }

  // The launch sizes of the parent-stationary kernels.
  dim3 parent_grid() const { return dim3(chunks, parent_blocks, tiles); }
  dim3 parent_block() const { return dim3(kWarp, warps); }

  Dims dims;
  int warps, parent_blocks, tiles, chunk, chunks;
};

// Hands out consecutive pieces of one allocation, aligned to 16 bytes. Constructed with null it
// only counts how much is needed.
class Arena {
 public:
  explicit Arena(float* memory) : memory_(memory) {}
  float* take(int64_t floats) {
    float* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (floats + 3) / 4 * 4;
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// Shared memory of a block in which every warp has a queue of weights.
template <int kDin, int kDout>
size_t queue_bytes(int warps) {
  return warps * WeightQueue<kDin * kDout>::kFloats * sizeof(float);
}

}  // namespace remcaps::kernels::cuda
