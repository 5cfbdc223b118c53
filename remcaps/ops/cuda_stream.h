// The device, stream and type of a tensor, for the CUDA kernels. This is the only place where torch's
// CUDA headers meet the kernels.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include "remcaps/kernels/pointwise/pointwise.h"

namespace remcaps::kernels::cuda {

/// Makes a tensor's device the current device while it lives, and knows the current stream there.
class DeviceScope {
 public:
  explicit DeviceScope(const torch::Tensor& tensor) : guard_(tensor.device()) {}
  cudaStream_t stream() const { return c10::cuda::getCurrentCUDAStream().stream(); }

 private:
  c10::cuda::CUDAGuard guard_;
};

/// `map` is float32 or bfloat16.
inline MapType map_type(const torch::Tensor& map) {
  return map.scalar_type() == torch::kFloat32 ? MapType::kFloat32 : MapType::kBFloat16;
}

}  // namespace remcaps::kernels::cuda
