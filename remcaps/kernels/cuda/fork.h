// Work beside other work: a second stream that begins where the first is and is waited for.
#pragma once

#include <cuda_runtime.h>

namespace remcaps::kernels::cuda {

/// What is launched on side() runs beside what is launched on the main stream from the construction
/// on; what follows join() on the main stream comes after both. In a recorded graph, too. One
/// stream for a device: forks do not overlap.
class Fork {
 public:
  explicit Fork(cudaStream_t main);
  /// Joins where nobody has, without a word: an exception is on its way.
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
