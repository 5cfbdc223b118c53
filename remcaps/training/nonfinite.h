// Finds the cause of a loss that is not finite.
#pragma once

#include <functional>
#include <string>

#include "remcaps/data/batches.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// Names the first tensor that is not finite. It looks at the images, the parameters and buffers,
/// the poses and couplings, and the gradients, in this order. `backward` computes the gradients of
/// the batch.
std::string find_nonfinite(CapsNet& model, const Batch& batch,
                           const std::function<void()>& backward);

}  // namespace remcaps
