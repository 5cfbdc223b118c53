// The counter-based random numbers of base/random.h as tensors, on any device.
#pragma once

#include <torch/types.h>

#include "remcaps/base/random.h"

namespace remcaps {

/// A uniform number in [0, 1) for each of `samples` (int64 [B], on any device): float32 [B], equal
/// to random_bits(...) * 2^-32, rounded down to 24 bits.
torch::Tensor random_uniform(uint64_t seed, RandomStream stream, uint64_t epoch,
                             const torch::Tensor& samples, uint32_t draw);

}  // namespace remcaps
