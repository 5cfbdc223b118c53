// Fills the free memory of a GPU, to show who reads memory before it is written.
#pragma once

#include <torch/types.h>

#include <cstdint>

#ifdef REMCAPS_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <torch/cuda.h>

#include "remcaps/base/error.h"
#endif

namespace remcaps {

/// NaN in every floating type, -1 in whole numbers.
constexpr uint8_t kPoison = 0xff;

/// Fills the free memory that libtorch holds on the GPUs with a byte, and makes sure that there is
/// enough of it for the next operations. This includes cuBLAS's workspaces, which are allocated
/// again by the next product.
inline void fill_free_memory([[maybe_unused]] uint8_t byte) {
#ifdef REMCAPS_CUDA
  torch::cuda::synchronize();
  at::cuda::clearCublasWorkspaces();
  // libtorch has one pool for tensors up to 1 MiB and one for larger ones.
  for (const int64_t bytes : {int64_t{1} << 19, int64_t{1} << 30})
    (void)torch::empty({bytes}, torch::TensorOptions().dtype(torch::kUInt8).device(torch::kCUDA));
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
    auto* block_begin = reinterpret_cast<char*>(static_cast<uintptr_t>(segment.address));
    for (const auto& block : segment.blocks) {
      if (!block.active)
        check(cudaMemset(block_begin, byte, static_cast<size_t>(block.size)) == cudaSuccess,
              "free memory could not be filled");
      block_begin += block.size;
    }
  }
  torch::cuda::synchronize();
#endif
}

}  // namespace remcaps
