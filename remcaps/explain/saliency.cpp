#include "remcaps/explain/saliency.h"

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"

namespace remcaps {

namespace {

// The mean over the types of each grid, upsampled, the grids weighted by their types: [B, H, W].
// The maps before upsampling go to `cells`, unless it is null.
Tensor upsampled_mean(const Tensor& values, const std::vector<CapsuleGrid>& grids, ImageShape input,
                      std::vector<Tensor>* cells = nullptr) {
  Tensor sum;
  int64_t types = 0;
  for (const CapsuleGrid& grid : grids) {
    const Tensor map = on_grid(values, grid).mean(1);
    const Tensor large = torch::upsample_bilinear2d(map.unsqueeze(1), {input.height, input.width},
                                                    /*align_corners=*/false)
                             .squeeze(1) *
                         grid.types;
    sum = sum.defined() ? sum + large : large;
    types += grid.types;
    if (cells != nullptr) cells->push_back(map);
  }
  return sum / types;
}

}  // namespace

bool has_place(const RoutingTrace& trace) {
  return std::any_of(trace.grids.begin(), trace.grids.end(),
                     [](const CapsuleGrid& grid) { return grid.height * grid.width > 1; });
}

size_t saliency_layer(const std::vector<RoutingTrace>& routings, const std::string& network,
                      const std::string& layer) {
  if (layer.empty()) {
    for (size_t l = routings.size(); l-- > 0;)
      if (has_place(routings[l])) return l;
    fail(
        "{}: its capsules lie on no grid, so there is no saliency map; its parse tree can be drawn",
        network);
  }
  std::vector<std::string> names;
  for (size_t l = 0; l < routings.size(); ++l) {
    names.push_back(routings[l].layer);
    if (routings[l].layer != layer) continue;
    check(has_place(routings[l]), "{}: the children of layer {} lie on no grid", network, layer);
    return l;
  }
  fail("{}: no routing layer {}{}", network, layer, suggestion(layer, names));
}

Saliency saliency(const std::vector<RoutingTrace>& routings, size_t layer, const Tensor& classes,
                  ImageShape input) {
  const RoutingTrace& trace = routings.at(layer);
  const Tensor activation = trace.child_activations.to(torch::kFloat);
  // A prior can make an unquantized coupling negative; it counts as 0.
  const Tensor coupling = coupling_to_class(routings, layer, classes).clamp_min(0);
  Saliency result;
  result.layer = trace.layer;
  result.map = upsampled_mean(activation * coupling, trace.grids, input, &result.cells);
  result.activation = upsampled_mean(activation, trace.grids, input);
  result.coupling = upsampled_mean(coupling, trace.grids, input);
  return result;
}

Tensor share_on_object(const Tensor& map, const Tensor& masks) {
  check(map.sizes() == masks.sizes(), "saliency of [{}] against masks of [{}]",
        fmt::join(map.sizes(), ", "), fmt::join(masks.sizes(), ", "));
  const Tensor object = masks.to(map.device()).ne(0).to(map.scalar_type());
  return (map * object).sum({1, 2}) / map.sum({1, 2}).clamp_min(1e-12);
}

}  // namespace remcaps
