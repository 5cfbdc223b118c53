// Where in the image an answer comes from: the capsules' contributions to a class, or the paper's
// saliency, at the places of the capsules.
#pragma once

#include <string>
#include <vector>

#include "remcaps/capsule/backtrack.h"
#include "remcaps/models/model.h"

namespace remcaps {

/// How a value of each capsule becomes a map of pixels.
enum class Placement {
  /// Each capsule's value is spread over the pixels it sees (CapsuleGrid::field), by a Gaussian
  /// with a quarter of the field's size as its deviation. The sum of the pixels is the sum of the
  /// values. Grids without a known field are stretched.
  kReceptiveFields,
  /// The mean over the types of each place, stretched bilinearly over the image (paper, 3.3). The
  /// grid's corners then lie on the image's corners, which a network without padding does not see
  /// there: a capsule at the corner of DR-CapsNet's grid sees a square of 17 pixels.
  kStretched,
};

/// values [B, I] -> [B, H, W]. If there are several grids (DeepCaps has two), their maps are added;
/// stretched ones are averaged with their numbers of types as weights, so that the value of a pixel
/// is the mean over all capsules at that place.
Tensor place_on_image(const Tensor& values, const std::vector<CapsuleGrid>& grids, ImageShape input,
                      Placement placement);

/// The evidence for one class of each image, where it comes from.
struct EvidenceMap {
  std::string layer;          ///< the routing layer whose children are mapped
  Evidence evidence;          ///< of these children
  Tensor positive, negative;  ///< the two kinds of contributions, both maps nonnegative, [B, H, W]

  /// positive - negative. Placed by receptive fields it adds up to the evidence, without the
  /// biases' part.
  Tensor net() const { return positive - negative; }
};
EvidenceMap evidence_map(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes, ImageShape input,
                         Placement placement = Placement::kReceptiveFields);

struct Saliency {
  std::string layer;            ///< the routing layer whose children are mapped
  std::vector<Tensor> cells;    ///< E on each grid of that layer, [B, M, N]
  Tensor map;                   ///< placed on the input, [B, H, W]; nonnegative
  Tensor activation, coupling;  ///< the two factors alone, [B, H, W]
};

/// Whether a layer's children have a place in the image: a grid of more than one cell.
bool has_place(const RoutingTrace& trace);

/// The routing layer that saliency is computed at: the named one, or the last one whose children
/// have a place (the paper's L - 1 if they have one). Error if there is none.
size_t saliency_layer(const std::vector<RoutingTrace>& routings, const std::string& network,
                      const std::string& layer = "");

/// The paper's view: E(m,n) = 1/O sum_o ||u_(m,n,o)|| c~_(m,n,o),j for the class j of each image,
/// placed on the image. The couplings are quantized if the forward pass was.
Saliency saliency(const std::vector<RoutingTrace>& routings, size_t layer, const Tensor& classes,
                  ImageShape input, Placement placement = Placement::kReceptiveFields);

/// The share of each image's saliency that lies on its object, [B] in 0..1; 0 for an empty map.
///   map    [B, H, W]
///   masks  [B, H, W], anything but zero is the object
Tensor share_on_object(const Tensor& map, const Tensor& masks);

}  // namespace remcaps
