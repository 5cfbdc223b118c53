// Initialisations that libtorch does not have. They use torch's global generator.
#pragma once

#include <torch/types.h>

namespace remcaps {

/// Keras' he_normal: a normal distribution, cut at two standard deviations and rescaled to the
/// standard deviation sqrt(2 / fan_in).
void he_normal_(torch::Tensor tensor, int64_t fan_in);

/// Keras' glorot_uniform: uniform in ± sqrt(6 / (fan_in + fan_out)).
void glorot_uniform_(torch::Tensor tensor, int64_t fan_in, int64_t fan_out);

}  // namespace remcaps
