// The losses of capsule networks.
#pragma once

#include <torch/types.h>

#include "remcaps/ops/kernel_path.h"

namespace remcaps {

using torch::Tensor;

/// Published: 0.9, 0.1, 0.5; DeepCaps switches to 0.95, 0.05, 0.8 at epoch 100.
struct MarginOptions {
  double m_plus = 0.9;   ///< the true class should be at least this long
  double m_minus = 0.1;  ///< the others at most this long
  double lambda = 0.5;   ///< weight of the others

  bool operator==(const MarginOptions&) const = default;
};

/// sum_k T_k max(0, m+ - ||v_k||)² + lambda (1 - T_k) max(0, ||v_k|| - m-)², mean over the batch.
///   activations [B, J] ||v_j||;  labels int64 [B].  Returns a scalar.
Tensor margin_loss(const Tensor& activations, const Tensor& labels,
                   const MarginOptions& options = {});

/// The same by one kernel on a GPU, where there is one for the tensors' types and `kernels` allows.
Tensor margin_loss(const Tensor& activations, const Tensor& labels, const MarginOptions& options,
                   KernelPath kernels);

/// The same for each image, [B]: for sample-weighted means over batches of different sizes.
Tensor margin_losses(const Tensor& activations, const Tensor& labels,
                     const MarginOptions& options = {});

/// Whether a mean margin loss is that of a network which finds every class in every image. Squash
/// has next to no gradient there: a network that a too high learning rate brought there seldom
/// returns.
bool finds_all_classes(double loss, int64_t classes, const MarginOptions& options);

/// Squared errors summed over each image, mean over the batch; both [B, ...] in normalised space.
/// The published weight is 0.0005.
Tensor reconstruction_loss(const Tensor& reconstruction, const Tensor& images);

}  // namespace remcaps
