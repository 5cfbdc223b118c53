// Squash and the margin loss, each one pass forward and one back.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace remcaps {

/// Whether a map has a fused squash: float32, on a GPU also bfloat16, whose gradient comes back as
/// bfloat16. Maps are a convolution's output [B, types * dim, h, w], channel = type * dim + d, NCHW
/// or channels-last; lengths are float32 in either type.
bool has_fused_squash(const torch::Tensor& map);

/// Squashed capsules, float32 [B, types * h * w, dim] in the order (type, row, column).
torch::Tensor fused_primary_squash(const torch::Tensor& map, int64_t types, int64_t dim,
                                   double epsilon);

/// The squashed map, in the type and layout of the map it is made of.
torch::Tensor fused_channel_squash(const torch::Tensor& map, int64_t types, int64_t dim,
                                   double epsilon);

/// The batch's mean of sum_k T_k max(0, m+ - a_k)^2 + lambda (1 - T_k) max(0, a_k - m-)^2, a
/// scalar.
///   activations [B, J] float32;  labels int64 [B]
bool has_fused_margin_loss(const torch::Tensor& activations, const torch::Tensor& labels);
torch::Tensor fused_margin_loss(const torch::Tensor& activations, const torch::Tensor& labels,
                                double m_plus, double m_minus, double lambda);

}  // namespace remcaps
