// Backtracking: only the connections that start from the predicted class capsule (paper, 3.3), and
// what each capsule below contributes to that class.
#pragma once

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

/// The class whose capsule is the longest, int64 [B].
Tensor predicted_classes(const Forward& forward);

/// The couplings c_{:,j}, or other numbers, to the class j of each image: [B, I, J] and int64 [B] ->
/// [B, I].
Tensor couplings_to(const Tensor& coupling, const Tensor& classes);

/// How strongly every child i of routing layer `layer` is coupled with one class j of each image:
/// [B, I].
///   classes   int64 [B], usually the predicted ones
///
/// For the children of the class layer it is the column c_{:,j}. Below that, couplings compose
/// along the paths of the parse tree: C_i = sum_k c_ik C_k over the parents k. A child of a
/// convolutional layer is in several windows and gets the mean over them. A sum would be larger for
/// places that many windows cover, and the picture would show the stride of the windows.
///
/// Error if the parents of a layer are not the children of the next one.
Tensor coupling_to_class(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes);

/// What the evidence for one class of each image is made of.
struct Evidence {
  Tensor children;  ///< what each child contributes, positive or negative, [B, I]
  Tensor bias;      ///< what the biases on the way contribute, [B]

  /// ||s_j||, the length of the class capsule's pre-activation, [B].
  Tensor total() const { return children.sum(1) + bias; }
};

/// What the children of routing layer `layer` contribute to the evidence for one class of each
/// image. The traces need contributions.
///
/// Below the class layer shares are multiplied: a child that is e_ik of its parent's evidence ||s_k||
/// gets that part of what the parent contributes, in every window it is in, and the parent's bias
/// gets its own part. So children and bias add up to ||s_j|| at every layer.
///
/// Error if the parents of a layer are not the children of the next one.
Evidence evidence_for(const std::vector<RoutingTrace>& routings, size_t layer,
                      const Tensor& classes);

/// The first routing layer of the chain that ends at the classes: in a chain the parents of each
/// layer are the children of the next. In DeepCaps it is the class layer, because maps are added
/// above its routed convolution.
size_t first_chained_layer(const std::vector<RoutingTrace>& routings);

/// Effective parts of an answer, from the contributions [B, I] of its capsules. Only positive ones
/// count; an image without any has 0 parts.
struct EffectiveParts {
  Tensor half;    ///< the least number of capsules that carry half of the evidence, int64 [B]
  Tensor spread;  ///< exp of the entropy of their shares, float64 [B]
};
EffectiveParts effective_parts(const Tensor& contributions);

/// Marks the capsules that carry half of the positive evidence: as few as possible, so those with
/// the largest contributions. bool, over the last dimension of any shape.
Tensor carries_half(const Tensor& contributions);

/// A value per child, [B, I], as a picture: [B, types, height, width].
Tensor on_grid(const Tensor& values, const CapsuleGrid& grid);

}  // namespace remcaps
