// What every kernel launch needs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace remcaps::kernels::cuda {

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA kernel ") + kernel + ": " +
                             cudaGetErrorString(error));
}

inline int blocks_for(int64_t threads, int64_t per_block) {
  return static_cast<int>((threads + per_block - 1) / per_block);
}

}  // namespace remcaps::kernels::cuda
