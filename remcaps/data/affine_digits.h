// affNIST's recipe: digits that are turned, sheared, stretched and put anywhere in a larger image.
#pragma once

#include "remcaps/data/dataset.h"

namespace remcaps {

/// `versions` images of [side, side] of each image of `digits` (uint8 [N, 1, H, W]); image v of
/// digit i is number i * versions + v. Each has its own rotation (within 20 degrees), shear (within
/// 0.2) and horizontal and vertical scale (0.8 to 1.2). It lies anywhere where all its ink is
/// inside, in the middle if there is no such place. Every number is uniform and depends on
/// (seed, i, v) alone. Pixels are interpolated bilinearly.
Dataset affine_digits(const Dataset& digits, int64_t side, int64_t versions, uint64_t seed);

}  // namespace remcaps
