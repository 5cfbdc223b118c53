// The optimiser step: one pass over the parameters for LOBSTER, Adam and the pruning mask.
#pragma once

#include <cstdint>
#include <vector>

#include "remcaps/kernels/formulas.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

/// The arrays of one parameter tensor. All are dense and hold their elements in the same order.
struct UpdateArrays {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float *first = nullptr, *second = nullptr;  ///< Adam's moments
  const uint8_t* dead = nullptr;  ///< 1: the weight is pruned and becomes 0; null: no mask
  int64_t count = 0;
  bool shrink = false;  ///< whether LOBSTER shrinks it
};

namespace cpu {
void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers& step);
}

namespace simd {
/// Updates elements begin..end, without the mask. The arrays are aligned to 64 bytes and `begin` is
/// a multiple of 64.
void update_range(const UpdateArrays& arrays, int64_t begin, int64_t end, const AdamConstants& adam,
                  const StepNumbers& step);
/// parameter[x] = 0 if dead[x] is not 0.
void mask_range(const uint8_t* dead, int64_t begin, int64_t end, float* parameter);
}  // namespace simd

#ifdef REMCAPS_CUDA
namespace cuda {
/// `step` is in device memory: a captured CUDA graph reads the numbers of the step it replays.
void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers* step, cudaStream_t stream);
}  // namespace cuda
#endif

}  // namespace remcaps::kernels
