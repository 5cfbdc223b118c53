#include "remcaps/kernels/cuda/fork.h"

#include <map>
#include <mutex>

#include "remcaps/kernels/cuda/launch.h"

namespace remcaps::kernels::cuda {
namespace {

struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t ready = nullptr, done = nullptr;
};

void check_call(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA streams: ") + cudaGetErrorString(error));
}

// The streams of the current device. They live until the process ends, like a device's context.
const Side& side_of_device() {
  static std::mutex mutex;
  static std::map<int, Side> sides;
  int device = 0;
  check_call(cudaGetDevice(&device));
  const std::lock_guard<std::mutex> lock(mutex);
  Side& side = sides[device];
  if (side.stream == nullptr) {
    check_call(cudaEventCreateWithFlags(&side.ready, cudaEventDisableTiming));
    check_call(cudaEventCreateWithFlags(&side.done, cudaEventDisableTiming));
    check_call(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking));
  }
  return side;
}

}  // namespace

Fork::Fork(cudaStream_t main) : main_(main) {
  const Side& side = side_of_device();
  side_ = side.stream;
  ready_ = side.ready;
  done_ = side.done;
  check_call(cudaEventRecord(ready_, main_));
  check_call(cudaStreamWaitEvent(side_, ready_, 0));
}

Fork::~Fork() {
  if (joined_ || cudaEventRecord(done_, side_) != cudaSuccess) return;
  cudaStreamWaitEvent(main_, done_, 0);
}

void Fork::join() {
  check_call(cudaEventRecord(done_, side_));
  check_call(cudaStreamWaitEvent(main_, done_, 0));
  joined_ = true;
}

}  // namespace remcaps::kernels::cuda
