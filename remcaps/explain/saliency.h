// Saliency: where in the image the capsules lie that the predicted class was assembled from.
#pragma once

#include <string>
#include <vector>

#include "remcaps/explain/backtrack.h"
#include "remcaps/models/model.h"

namespace remcaps {

struct Saliency {
  std::string layer;            ///< the routing layer whose children are looked at
  std::vector<Tensor> cells;    ///< E on each grid of that layer, [B, M, N]
  Tensor map;                   ///< upsampled to the input, [B, H, W]; nonnegative
  Tensor activation, coupling;  ///< the two factors alone, each a mean over types, [B, H, W]
};

/// Whether a layer's children have a place in the image: a grid of more than one cell.
bool has_place(const RoutingTrace& trace);

/// The routing layer saliency is computed at: the named one, or the last whose children have a
/// place (the paper's L - 1 where that one has). Error where there is none.
size_t saliency_layer(const std::vector<RoutingTrace>& routings, const std::string& network,
                      const std::string& layer = "");

/// E(m,n) = 1/O sum_o ||u_(m,n,o)|| c~_(m,n,o),j for the class j of each image, then bilinear
/// upsampling. The couplings are quantized where the forward pass was.
///
/// Several grids (DeepCaps has two): each is upsampled and the maps are averaged, weighted by their
/// numbers of types. A pixel's value is thereby the mean over all capsules that stand there, which
/// is what 1/O sum_o is on one grid.
Saliency saliency(const std::vector<RoutingTrace>& routings, size_t layer, const Tensor& classes,
                  ImageShape input);

/// The share of each image's saliency that lies on its object, [B] in 0..1; 0 for an empty map.
///   map    [B, H, W]
///   masks  [B, H, W], anything but zero is the object
Tensor share_on_object(const Tensor& map, const Tensor& masks);

}  // namespace remcaps
