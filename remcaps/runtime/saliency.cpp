#include "remcaps/runtime/saliency.h"

#include <algorithm>

namespace remcaps::runtime {
namespace {

bool lies_somewhere(const Sight& children) {
  return std::any_of(children.places.begin(), children.places.end(),
                     [](const CapsulePlaces& places) { return places.height * places.width > 1; });
}

// The sum over the types of each place, [height, width].
std::vector<float> sums_of_cells(std::span<const float> values, const CapsulePlaces& places,
                                 const std::vector<int64_t>& kept) {
  const int64_t cells = places.height * places.width;
  std::vector<float> sums(static_cast<size_t>(cells));
  for (int64_t n = 0; n < places.types * cells; ++n) {
    const int64_t capsule = places.first + n;
    const int64_t child = kept.empty() ? capsule : kept[static_cast<size_t>(capsule)];
    const int64_t cell = places.type_first ? n % cells : n / places.types;
    sums[static_cast<size_t>(cell)] += values[static_cast<size_t>(child)];
  }
  return sums;
}

}  // namespace

Sight sight_of(const Operation& operation, const std::vector<Sight>& inputs,
               const std::vector<ValueShape>& shapes) {
  Sight sight = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    // Of two maps that are added, the one that sees more.
    if (inputs[i].field.y.size > sight.field.y.size) sight.field = inputs[i].field;
    int64_t first = 0;
    for (size_t before = 0; before < i; ++before) first += shapes[before].count;
    for (CapsulePlaces places : inputs[i].places) {
      places.first += first;
      sight.places.push_back(places);
    }
  }
  if (operation.window) sight.field = operation.window->over(sight.field);
  if (operation.routing) sight.places.clear();
  if (operation.places) {
    sight.places = {*operation.places};
    sight.places[0].field = sight.field;
  }
  return sight;
}

std::optional<SaliencyLayer> find_saliency_layer(const std::vector<RoutingInfo>& layers,
                                                 const std::vector<Sight>& children) {
  size_t layer = layers.size();
  while (layer > 0 && !lies_somewhere(children[layer - 1])) --layer;
  if (layer == 0) return std::nullopt;
  for (size_t l = --layer; l < layers.size(); ++l)
    if (layers[l].positions != 1 ||
        (l + 1 < layers.size() && layers[l].parents != layers[l + 1].children))
      return std::nullopt;
  SaliencyLayer found{layer, children[layer].places};
  std::erase_if(found.places, [](const auto& it) { return it.height * it.width == 1; });
  return found;
}

std::vector<float> coupling_to_class(const std::vector<RoutingInfo>& layers,
                                     const std::vector<std::span<const float>>& couplings,
                                     size_t layer, int64_t class_index) {
  std::vector<float> to_class(static_cast<size_t>(layers.back().parents));
  to_class[static_cast<size_t>(class_index)] = 1;
  for (size_t l = layers.size(); l-- > layer;) {
    std::vector<float> of_children(static_cast<size_t>(layers[l].children));
    auto coupling = couplings[l].begin();
    for (float& child : of_children)
      for (const float parent : to_class) child += *coupling++ * parent;
    to_class = std::move(of_children);
  }
  return to_class;
}

std::vector<float> place_on_image(std::span<const float> values,
                                  const std::vector<CapsulePlaces>& places,
                                  const std::vector<int64_t>& kept, int64_t height, int64_t width) {
  std::vector<double> map(static_cast<size_t>(height * width));
  for (const CapsulePlaces& of : places) {
    const std::vector<float> sums = sums_of_cells(values, of, kept);
    const std::vector<double> rows = kernels::field_weights(of.field.y, of.height, height);
    const std::vector<double> columns = kernels::field_weights(of.field.x, of.width, width);
    for (int64_t y = 0; y < height; ++y)
      for (int64_t n = 0; n < of.width; ++n) {
        double part = 0;  // of column n of the cells, in row y of the pixels
        for (int64_t m = 0; m < of.height; ++m)
          part += rows[static_cast<size_t>(m * height + y)] *
                  sums[static_cast<size_t>(m * of.width + n)];
        for (int64_t x = 0; x < width; ++x)
          map[static_cast<size_t>(y * width + x)] +=
              part * columns[static_cast<size_t>(n * width + x)];
      }
  }
  return {map.begin(), map.end()};
}

}  // namespace remcaps::runtime
