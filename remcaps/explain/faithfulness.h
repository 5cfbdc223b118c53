// Whether a map shows the pixels that an answer rests on: take pixels away in the map's order and
// see how fast the answer goes.
#pragma once

#include <functional>

#include "remcaps/explain/saliency.h"

namespace remcaps {

/// The pixels of each image, those with the largest value first, int64 [B, H * W].
///   maps  [B, H, W]
///   ties  numbers in 0..1 of the same shape: the order of pixels of equal value
Tensor pixel_order(const Tensor& maps, const Tensor& ties);

/// The length of a class's capsule while pixels are taken in an order, float64 [B, steps + 1]:
/// after none of them, 1 / steps of them, ..., all of them.
struct PixelCurves {
  Tensor deletion;   ///< of the image without these pixels: they are black
  Tensor insertion;  ///< of a black image with these pixels
};

///   lengths  images [B, C, H, W] -> the length of the class that each image is followed for, [B]
///   black    the normalised value of a black pixel, [C, 1, 1]
PixelCurves pixel_curves(const std::function<Tensor(const Tensor&)>& lengths, const Tensor& images,
                         const Tensor& black, const Tensor& order, int64_t steps);

/// The area under such a curve, on an axis from 0 to 1: float64 [B].
Tensor area_under(const Tensor& curve);

/// Grad-CAM (Selvaraju et al.) on the map of capsules below routing layer `layer`: the positive
/// part of sum_k a_k A_k, where A_k is a component of the poses of a type, a map, and a_k the mean
/// over the places of the gradient of the class's length. [B, H, W].
///
/// Runs the network with gradients.
Tensor grad_cam(CapsNet& model, const Tensor& images, const ForwardOptions& options, size_t layer,
                const Tensor& classes, Placement placement = Placement::kReceptiveFields);

}  // namespace remcaps
