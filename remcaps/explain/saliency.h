// Saliency: the places in the image of the capsules that vote for the predicted class.
#pragma once

#include <string>
#include <vector>

#include "remcaps/explain/backtrack.h"
#include "remcaps/models/model.h"

namespace remcaps {

struct Saliency {
  std::string layer;            ///< the routing layer whose children are mapped
  std::vector<Tensor> cells;    ///< E on each grid of that layer, [B, M, N]
  Tensor map;                   ///< upsampled to the input, [B, H, W]; nonnegative
  Tensor activation, coupling;  ///< the two factors alone, each a mean over types, [B, H, W]
};

/// Whether a layer's children have a place in the image: a grid of more than one cell.
bool has_place(const RoutingTrace& trace);

/// The routing layer that saliency is computed at: the named one, or the last one whose children have
/// a place (the paper's L - 1 if they have one). Error if there is none.
size_t saliency_layer(const std::vector<RoutingTrace>& routings, const std::string& network,
                      const std::string& layer = "");

/// E(m,n) = 1/O sum_o ||u_(m,n,o)|| c~_(m,n,o),j for the class j of each image, then bilinear
/// upsampling. The couplings are quantized if the forward pass was.
///
/// If there are several grids (DeepCaps has two), each is upsampled, and the maps are averaged with
/// their numbers of types as weights. The value of a pixel is then the mean over all capsules at that
/// place, as on a single grid.
Saliency saliency(const std::vector<RoutingTrace>& routings, size_t layer, const Tensor& classes,
                  ImageShape input);

/// The share of each image's saliency that lies on its object, [B] in 0..1; 0 for an empty map.
///   map    [B, H, W]
///   masks  [B, H, W], anything but zero is the object
Tensor share_on_object(const Tensor& map, const Tensor& masks);

}  // namespace remcaps
