#include "remcaps/explain/backtrack.h"

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

[[noreturn]] void not_a_chain(const RoutingTrace& lower, const RoutingTrace& upper) {
  fail("couplings of {} lead to no class: its {} parents are not the {} children of {}",
       lower.layer,
       lower.convolutional() ? lower.coupling.size(1) * lower.coupling.size(3)
                             : lower.coupling.size(2),
       upper.child_activations.size(1), upper.layer);
}

// values [B, P * J] of the next layer's children, in whatever order its grid says -> [B, P, J].
Tensor by_window(const Tensor& values, const RoutingTrace& lower, const RoutingTrace& upper) {
  const int64_t windows = lower.coupling.size(1), types = lower.coupling.size(3);
  if (upper.grids.size() != 1 || upper.grids[0].types != types ||
      upper.grids[0].height * upper.grids[0].width != windows ||
      upper.child_activations.size(1) != windows * types)
    not_a_chain(lower, upper);
  return on_grid(values, upper.grids[0]).flatten(2).transpose(1, 2);
}

}  // namespace

Tensor predicted_classes(const Forward& forward) {
  return forward.activations.argmax(1);
}

Tensor on_grid(const Tensor& values, const CapsuleGrid& grid) {
  const Tensor rows = values.contiguous();
  return rows.as_strided({rows.size(0), grid.types, grid.height, grid.width},
                         {rows.size(1), grid.stride_type, grid.stride_y, grid.stride_x},
                         rows.storage_offset() + grid.offset);
}

Tensor coupling_to_class(const std::vector<RoutingTrace>& routings, size_t layer,
                         const Tensor& classes) {
  check(layer < routings.size(), "routing layer {} asked for; the network has {}", layer,
        routings.size());
  const RoutingTrace& trace = routings[layer];
  const Tensor coupling = trace.coupling.to(torch::kFloat);
  if (layer + 1 == routings.size()) {
    check(!trace.convolutional(), "{}: class capsules with windows have no single place",
          trace.layer);
    const Tensor column = classes.view({-1, 1, 1}).expand({-1, coupling.size(1), 1});
    return coupling.gather(2, column).squeeze(2);
  }
  const RoutingTrace& next = routings[layer + 1];
  const Tensor parents = coupling_to_class(routings, layer + 1, classes);  // [B, parents]
  if (!trace.convolutional()) {
    if (coupling.size(2) != parents.size(1)) not_a_chain(trace, next);
    return coupling.bmm(parents.unsqueeze(2)).squeeze(2);
  }
  const Tensor places =
      (coupling * by_window(parents, trace, next).unsqueeze(2)).sum(3).flatten(1);  // [B, P * Iw]
  const Tensor child = trace.windows.to(coupling.device()).flatten();               // [P * Iw]
  const Tensor sum =
      torch::zeros_like(trace.child_activations, coupling.options()).index_add(1, child, places);
  const Tensor covered =
      torch::zeros({sum.size(1)}, sum.options()).index_add(0, child, torch::ones_like(places[0]));
  return sum / covered.clamp_min(1);
}

}  // namespace remcaps
