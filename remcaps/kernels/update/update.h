// One pass over the parameters that does LOBSTER, Adam and the mask.
#pragma once

#include <cstdint>
#include <vector>

#include "remcaps/kernels/formulas.h"

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace remcaps::kernels {

/// The arrays of one parameter tensor, dense, in the same order.
struct UpdateArrays {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float *first = nullptr, *second = nullptr;  ///< Adam's moments
  const uint8_t* dead = nullptr;              ///< 1: the weight is pruned and set to 0; null: none
  int64_t count = 0;
  bool shrink = false;  ///< LOBSTER works on it
};

/// Elements begin..end of a tensor whose arrays are aligned to 64 bytes, all but the mask; `begin`
/// is a multiple of 64.
void update_range(const UpdateArrays& arrays, int64_t begin, int64_t end, const AdamConstants& adam,
                  const StepNumbers& step);
/// parameter[x] <- 0 where dead[x] is not 0.
void mask_range(const uint8_t* dead, int64_t begin, int64_t end, float* parameter);

namespace cpu {
void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers& step);
}

#ifdef REMCAPS_CUDA
namespace cuda {
/// `step` lies on the device, so that a captured graph reads the numbers of the step it replays.
void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers* step, cudaStream_t stream);
}  // namespace cuda
#endif

}  // namespace remcaps::kernels
