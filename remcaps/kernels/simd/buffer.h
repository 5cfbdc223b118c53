// Memory for the CPU kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace remcaps::kernels {

/// Uninitialised floats, aligned for any vector.
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

/// The number of pieces of at most `piece` that `total` is cut into.
inline int64_t pieces_of(int64_t total, int64_t piece) {
  return (total + piece - 1) / piece;
}

}  // namespace remcaps::kernels
