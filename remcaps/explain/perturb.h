// What each dimension of a class capsule's pose means: move it and decode an image.
#pragma once

#include <vector>

#include "remcaps/capsule/backtrack.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// Offsets from -range to range, `count` of them; an odd count has 0 in its middle. Published: 11
/// steps within +-0.05; Sabour et al.: 11 within +-0.25.
std::vector<double> perturbation_offsets(double range, int64_t count);

/// Reconstructions with one pose dimension moved at a time, in normalised space:
/// [D, offsets, C, H, W].
///   pose  [D], of class `class_index`
/// Error if the network has no decoder.
Tensor perturb(CapsNet& model, const Tensor& pose, int64_t class_index,
               const std::vector<double>& offsets);

}  // namespace remcaps
