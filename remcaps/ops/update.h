// The optimiser step as one pass over all parameters: LOBSTER's shrinking, Adam and the pruning
// mask.
#pragma once

#include <torch/types.h>

#include <vector>

namespace remcaps {

/// A parameter and its tensors: all float32 except the mask, dense, on one device, in the same
/// memory layout.
struct UpdatedParameter {
  torch::Tensor parameter, gradient;
  torch::Tensor first, second;  ///< Adam's moments
  torch::Tensor dead;           ///< bool, true for pruned weights; undefined: no mask
  bool shrink = false;          ///< whether LOBSTER shrinks it
};

struct UpdateConstants {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

/// The numbers that change from step to step, float32 [3]: lr / (1 - beta1^t), sqrt(1 - beta2^t)
/// and LOBSTER's lambda. They are on the parameters' device: a captured CUDA graph reads what the
/// tensor holds at the replay.
torch::Tensor step_numbers(double lr, const UpdateConstants& constants, int64_t step, double lambda,
                           const torch::Device& device);
/// The numbers of the steps first, first + 1, ...: [count, 3].
torch::Tensor step_numbers(double lr, const UpdateConstants& constants, int64_t first,
                           int64_t count, double lambda, const torch::Device& device);

/// For every parameter, in this order:
///   p <- p - lambda p max(0, 1 - |g|)     if `shrink`
///   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
///   p <- p - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
///   p <- 0                                if `dead`
void fused_update(const std::vector<UpdatedParameter>& parameters, const UpdateConstants& constants,
                  const torch::Tensor& numbers);

}  // namespace remcaps
