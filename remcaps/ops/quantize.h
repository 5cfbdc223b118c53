// Quantization of coupling tensors, on any device.
#pragma once

#include <torch/types.h>

#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

/// The level 0..K-1 of each coupling (Quantizer::level), int64, same shape.
torch::Tensor level_indices(const torch::Tensor& coupling, const Quantizer& quantizer);

/// The value of each coupling's level, same shape: float64 for float64, float32 for any other type.
torch::Tensor quantize(const torch::Tensor& coupling, const Quantizer& quantizer);

/// The key of each row of couplings (parse_tree/keys.h). [B, N] -> uint8 [B, key_length], on the
/// couplings' device.
torch::Tensor encode_keys(const torch::Tensor& couplings, const Quantizer& quantizer);

}  // namespace remcaps
