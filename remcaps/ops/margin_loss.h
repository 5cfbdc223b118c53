// The margin loss: plain tensor code and one fused kernel.
#pragma once

#include <torch/types.h>

#include "remcaps/ops/kernel_path.h"

namespace remcaps {

/// Published: 0.9, 0.1, 0.5; DeepCaps switches to 0.95, 0.05, 0.8 at epoch 100.
struct MarginOptions {
  double m_plus = 0.9;   ///< the true class should be at least this long
  double m_minus = 0.1;  ///< the others at most this long
  double lambda = 0.5;   ///< weight of the others
  /// Instead, the loss of an image is -log of the true class's activation: for networks whose
  /// activations are probabilities.
  bool cross_entropy = false;

  bool operator==(const MarginOptions&) const = default;
};

/// The loss of each image, [B]:
///   sum_k T_k max(0, m+ - ||v_k||)² + lambda (1 - T_k) max(0, ||v_k|| - m-)²
/// activations [B, J] are the lengths ||v_k||; labels are int64 [B]. Plain tensor code.
torch::Tensor margin_losses(const torch::Tensor& activations, const torch::Tensor& labels,
                            const MarginOptions& options = {});

/// The mean of margin_losses(), a scalar. kFused: by fused_margin_loss() on a GPU if the types
/// and options allow it. On a CPU the plain code is used, which is fast enough.
torch::Tensor margin_loss(const torch::Tensor& activations, const torch::Tensor& labels,
                          const MarginOptions& options = {},
                          KernelPath kernels = KernelPath::kReference);

/// The same mean by one kernel, on either device, without cross_entropy. activations float32,
/// labels int64.
torch::Tensor fused_margin_loss(const torch::Tensor& activations, const torch::Tensor& labels,
                                const MarginOptions& options = {});

}  // namespace remcaps
