// Where a loss that is not finite comes from.
#pragma once

#include <functional>
#include <string>

#include "remcaps/data/batches.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// Names the first thing that is not finite, in the order it would have spread: the images, a
/// parameter or buffer, the network's poses or a routing layer's couplings, a gradient.
/// `backward` makes the gradients of the batch.
std::string find_nonfinite(CapsNet& model, const Batch& batch,
                           const std::function<void()>& backward);

}  // namespace remcaps
