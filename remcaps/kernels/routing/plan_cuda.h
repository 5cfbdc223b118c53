// How a routing problem on CUDA is cut into blocks, and where its arrays lie.
#pragma once

#include <algorithm>
#include <cstdint>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {

// Depends on the shape alone, so results repeat on any GPU.
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

  // Of the parent stationary kernels.
  dim3 parent_grid() const { return dim3(chunks, parent_blocks, tiles); }
  dim3 parent_block() const { return dim3(kWarp, warps); }

  Dims dims;
  int warps, parent_blocks, tiles, chunk, chunks;
};

// Hands out consecutive pieces of one allocation, 16-byte aligned; sizes it when there is none yet.
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

template <int kDinValue, int kDoutValue>
struct PoseSizes {
  static constexpr int kDin = kDinValue, kDout = kDoutValue;
};

// Calls `fast` with the pose sizes as compile-time constants where there is a kernel for them, else
// `any`.
template <typename Fast, typename Any>
auto with_pose_sizes(int64_t child_dim, int64_t parent_dim, const Fast& fast, const Any& any) {
  if (child_dim == 8 && parent_dim == 16) return fast(PoseSizes<8, 16>{});
  if (child_dim == 8 && parent_dim == 8) return fast(PoseSizes<8, 8>{});
  if (child_dim == 8 && parent_dim == 32) return fast(PoseSizes<8, 32>{});
  if (child_dim == 16 && parent_dim == 16) return fast(PoseSizes<16, 16>{});
  return any();
}

// Shared memory of a block whose every warp has a queue of weights.
template <int kDin, int kDout>
size_t queue_bytes(int warps) {
  return warps * WeightQueue<kDin * kDout>::kFloats * sizeof(float);
}

}  // namespace remcaps::kernels::cuda
