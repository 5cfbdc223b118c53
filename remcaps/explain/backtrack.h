// Backtracking: only the connections that start from the predicted class capsule (paper, 3.3).
#pragma once

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// The class whose capsule is the longest, int64 [B].
Tensor predicted_classes(const Forward& forward);

/// How strongly every child i of routing layer `layer` is coupled with one class j of each image:
/// [B, I].
///   classes   int64 [B], usually the predicted ones
///
/// For the children of the class layer it is the column c_{:,j}. Below that, couplings compose along
/// the paths of the parse tree: C_i = sum_k c_ik C_k over the parents k. A child of a convolutional
/// layer is in several windows and gets the mean over them. A sum would be larger for places that
/// many windows cover, and the picture would show the stride of the windows.
///
/// Error if the parents of a layer are not the children of the next one.
Tensor coupling_to_class(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes);

/// A value per child, [B, I], as a picture: [B, types, height, width].
Tensor on_grid(const Tensor& values, const CapsuleGrid& grid);

}  // namespace remcaps
