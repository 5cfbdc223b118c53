#include "remcaps/explain/saliency.h"

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/kernels/pictures/receptive_field.h"

namespace remcaps {

namespace {

Tensor stretched(const Tensor& values, const std::vector<CapsuleGrid>& grids, ImageShape input) {
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
  }
  return sum / types;
}

// The weights of field_weights(), [places, pixels].
Tensor weights_of(const ReceptiveField::Axis& field, int64_t places, int64_t pixels,
                  const torch::TensorOptions& options) {
  const kernels::ReceptiveField::Axis axis{field.first, static_cast<double>(field.step),
                                           static_cast<double>(field.size)};
  return torch::tensor(kernels::field_weights(axis, places, pixels), torch::kDouble)
      .view({places, pixels})
      .to(options);
}

}  // namespace

Tensor place_on_image(const Tensor& values, const std::vector<CapsuleGrid>& grids, ImageShape input,
                      Placement placement) {
  const bool known = std::all_of(grids.begin(), grids.end(),
                                 [](const CapsuleGrid& grid) { return grid.field.has_value(); });
  if (placement == Placement::kStretched || !known) return stretched(values, grids, input);
  Tensor sum = torch::zeros({values.size(0), input.height, input.width}, values.options());
  for (const CapsuleGrid& grid : grids) {
    const Tensor rows = weights_of(grid.field->y, grid.height, input.height, values.options());
    const Tensor columns = weights_of(grid.field->x, grid.width, input.width, values.options());
    sum += rows.t().matmul(on_grid(values, grid).sum(1)).matmul(columns);
  }
  return sum;
}

EvidenceMap evidence_map(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes, ImageShape input, Placement placement) {
  EvidenceMap map;
  map.layer = routings.at(layer).layer;
  map.evidence = evidence_for(routings, layer, classes);
  const auto& grids = routings[layer].grids;
  const Tensor& children = map.evidence.children;
  map.positive = place_on_image(children.clamp_min(0), grids, input, placement);
  map.negative = place_on_image(children.neg().clamp_min(0), grids, input, placement);
  return map;
}

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
                  ImageShape input, Placement placement) {
  const RoutingTrace& trace = routings.at(layer);
  const Tensor activation = trace.child_activations.to(torch::kFloat);
  // A prior can make an unquantized coupling negative; it counts as 0.
  const Tensor coupling = coupling_to_class(routings, layer, classes).clamp_min(0);
  Saliency result;
  result.layer = trace.layer;
  for (const CapsuleGrid& grid : trace.grids)
    result.cells.push_back(on_grid(activation * coupling, grid).mean(1));
  result.map = place_on_image(activation * coupling, trace.grids, input, placement);
  result.activation = place_on_image(activation, trace.grids, input, placement);
  result.coupling = place_on_image(coupling, trace.grids, input, placement);
  return result;
}

Tensor share_on_object(const Tensor& map, const Tensor& masks) {
  check(map.sizes() == masks.sizes(), "saliency of [{}] against masks of [{}]",
        fmt::join(map.sizes(), ", "), fmt::join(masks.sizes(), ", "));
  const Tensor object = masks.to(map.device()).ne(0).to(map.scalar_type());
  return (map * object).sum({1, 2}) / map.sum({1, 2}).clamp_min(1e-12);
}

}  // namespace remcaps
