// How the CPU routing cuts a batch into groups of images and the children into chunks.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>

#include "remcaps/kernels/routing_lanes.h"

namespace remcaps::kernels::cpu {

// Uninitialised floats aligned for any vector.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t floats) {
    const size_t bytes = (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64;
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64))));
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  float* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float[], Free> memory_;
};

inline int64_t pieces_of(int64_t total, int64_t piece) {
  return (total + piece - 1) / piece;
}

// How a problem is cut up: groups of one image per lane, and chunks of children. The cut depends on
// the shape alone, so results do not depend on the number of threads. A chunk's weights fit the
// second-level cache while all groups pass over them.
struct Cut {
  explicit Cut(const RoutingShape& shape)
      : lanes(image_lanes()),
        groups(pieces_of(shape.batch, lanes)),
        chunk(std::max<int64_t>(8, (shape.children + 31) / 32)),
        chunks(pieces_of(shape.children, chunk)),
        child_floats(shape.children * shape.child_dim * lanes),
        pose_floats(shape.pose_size() * lanes),
        coupling_floats(shape.children * shape.parents * lanes) {}

  int64_t lanes, groups, chunk, chunks;
  int64_t child_floats, pose_floats, coupling_floats;  ///< of one group's arrays
};

// Hands out chunks one at a time: a thread that others have crowded out of its core holds nobody
// up, and since the cut is fixed it does not matter who takes which. All groups of images pass over
// a chunk before the next is taken, so its weights are read from memory once.
class ChunkQueue {
 public:
  explicit ChunkQueue(int64_t chunks) : chunks_(chunks) {}
  std::optional<int64_t> next() {
    const int64_t chunk = next_.fetch_add(1);
    return chunk < chunks_ ? std::optional(chunk) : std::nullopt;
  }

 private:
  int64_t chunks_;
  std::atomic<int64_t> next_ = 0;
};

template <typename Work>
void on_every_thread(const Work& work) {
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) { work(); });
}

// [B, X] -> [groups, X, lanes]; lanes beyond the batch are zero.
void pack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

// [groups, X, lanes] -> [B, X]
void unpack(const Cut& cut, int64_t batch, int64_t size, const float* from, float* to);

}  // namespace remcaps::kernels::cpu
