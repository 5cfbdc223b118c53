// The only place where torch's CUDA headers meet the kernels: the device and stream of a tensor.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

namespace remcaps::kernels::cuda {

/// Makes a tensor's device the current one while it lives, and knows its current stream.
class DeviceScope {
 public:
  explicit DeviceScope(const torch::Tensor& tensor) : guard_(tensor.device()) {}
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream().stream(); }

 private:
  c10::cuda::CUDAGuard guard_;
};

}  // namespace remcaps::kernels::cuda
