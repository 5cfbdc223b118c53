// Where in the image an answer comes from: the saliency of explain/saliency.h without libtorch.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "remcaps/runtime/network.h"
#include "remcaps/runtime/operation.h"

namespace remcaps::runtime {

/// What is known of a value of the graph: the pixels that the places of its map see, and where its
/// capsules lie. No places: it is a map, or its capsules lie nowhere.
struct Sight {
  kernels::ReceptiveField field;
  std::vector<CapsulePlaces> places = {};
};

/// The sight of an operation's output, from the sights of its inputs.
Sight sight_of(const Operation& operation, const std::vector<Sight>& inputs,
               const std::vector<ValueShape>& shapes);

/// The routing layer whose children are mapped: the last one whose children have a place.
struct SaliencyLayer {
  size_t layer = 0;
  std::vector<CapsulePlaces> places;
};

/// `children` has the sight of the children of each routing layer. Nothing if none have a place, or
/// if those that have are not coupled with the classes through fully connected layers alone.
std::optional<SaliencyLayer> find_saliency_layer(const std::vector<RoutingInfo>& layers,
                                                 const std::vector<Sight>& children);

/// How strongly every child of `layer` is coupled with a class, over the paths of the parse tree:
/// [I]. `couplings` has those of each layer for the image, [I, J].
std::vector<float> coupling_to_class(const std::vector<RoutingInfo>& layers,
                                     const std::vector<std::span<const float>>& couplings,
                                     size_t layer, int64_t class_index);

/// Spreads a value per capsule, those of `kept` (empty: all), over the pixels: [height, width].
std::vector<float> place_on_image(std::span<const float> values,
                                  const std::vector<CapsulePlaces>& places,
                                  const std::vector<int64_t>& kept, int64_t height, int64_t width);

}  // namespace remcaps::runtime
