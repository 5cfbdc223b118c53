// Runs work on a second CUDA stream beside the main stream.
#pragma once

#include <cuda_runtime.h>

namespace remcaps::kernels::cuda {

/// Work launched on side() after the construction runs beside work launched on the main stream.
/// Work launched on the main stream after join() waits for both. This also holds in a recorded
/// graph. A device has one such stream, so that only one Fork may exist at a time.
class Fork {
 public:
  explicit Fork(cudaStream_t main);
  /// Joins if join() was not called, and ignores errors: an exception is being thrown then.
  ~Fork();
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

  cudaStream_t side() const { return side_; }
  void join();

 private:
  cudaStream_t main_, side_;
  cudaEvent_t ready_, done_;
  bool joined_ = false;
};

}  // namespace remcaps::kernels::cuda
