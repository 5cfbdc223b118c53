// The losses of capsule networks. The margin loss is in ops/margin_loss.h.
#pragma once

#include <torch/types.h>

#include "remcaps/ops/margin_loss.h"

namespace remcaps {

using torch::Tensor;

/// Whether a mean margin loss is that of a network which finds every class in every image. The
/// squash has almost no gradient there, so a network that a too high learning rate has brought into
/// this state seldom recovers.
bool finds_all_classes(double loss, int64_t classes, const MarginOptions& options);

/// Squared errors summed over each image, mean over the batch; both [B, ...] in normalised space.
/// The published weight is 0.0005.
Tensor reconstruction_loss(const Tensor& reconstruction, const Tensor& images);

}  // namespace remcaps
