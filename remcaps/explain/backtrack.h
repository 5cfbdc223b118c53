// Backtracking: only the connections that start from the predicted class capsule (paper, 3.3).
#pragma once

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// The class whose capsule is the longest, int64 [B].
Tensor predicted_classes(const Forward& forward);

/// How much every child i of routing layer `layer` is coupled with one class j of each image, [B,
/// I].
///   classes   int64 [B], usually the predicted ones
///
/// Of the class layer's children it is the column c_{:,j}. Below that, couplings compose along the
/// paths of the parse tree, C_i = sum_k c_ik C_k over the parents k, so that a child is tied to a
/// class as far as its parents are. A child of a convolutional layer stands in several windows and
/// gets the mean over them: a sum would favour places that many windows cover and draw the stride
/// of the windows into the picture.
///
/// Error where the parents of a layer are not the children of the next one.
Tensor coupling_to_class(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes);

/// A value per child, [B, I], as a picture: [B, types, height, width].
Tensor on_grid(const Tensor& values, const CapsuleGrid& grid);

}  // namespace remcaps
