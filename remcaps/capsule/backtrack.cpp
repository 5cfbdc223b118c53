#include "remcaps/capsule/backtrack.h"

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

// Whether everything that leaves `lower` arrives at the children of `upper`.
bool is_chain(const RoutingTrace& lower, const RoutingTrace& upper) {
  const int64_t children = upper.child_activations.size(1);
  if (!lower.convolutional()) return lower.coupling.size(2) == children;
  const int64_t windows = lower.coupling.size(1), types = lower.coupling.size(3);
  return upper.grids.size() == 1 && upper.grids[0].types == types &&
         upper.grids[0].height * upper.grids[0].width == windows && children == windows * types;
}

// values [B, P * J] of the next layer's children, in whatever order its grid says -> [B, P, J].
Tensor by_window(const Tensor& values, const RoutingTrace& upper) {
  return on_grid(values, upper.grids[0]).flatten(2).transpose(1, 2);
}

// Values of all places of all windows, [B, P * Iw], summed for each child: [B, I].
Tensor sum_over_windows(const Tensor& places, const RoutingTrace& trace) {
  const Tensor child = trace.windows.to(places.device()).flatten();
  return torch::zeros({places.size(0), trace.child_activations.size(1)}, places.options())
      .index_add(1, child, places);
}

// The positive contributions, the largest first, with the sum up to each. float64.
struct Sorted {
  Tensor share, before, order;
};
Sorted sorted_shares(const Tensor& contributions) {
  const Tensor positive = contributions.to(torch::kDouble).clamp_min(0);
  const auto [values, order] = positive.sort(/*dim=*/-1, /*descending=*/true);
  const Tensor share = values / values.sum(-1, /*keepdim=*/true).clamp_min(1e-300);
  return {share, share.cumsum(-1) - share, order};
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

Tensor couplings_to(const Tensor& coupling, const Tensor& classes) {
  const Tensor column =
      classes.to(coupling.device()).view({-1, 1, 1}).expand({-1, coupling.size(1), 1});
  return coupling.gather(2, column).squeeze(2);
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
    return couplings_to(coupling, classes);
  }
  const RoutingTrace& next = routings[layer + 1];
  if (!is_chain(trace, next)) not_a_chain(trace, next);
  const Tensor parents = coupling_to_class(routings, layer + 1, classes);  // [B, parents]
  if (!trace.convolutional()) return coupling.bmm(parents.unsqueeze(2)).squeeze(2);
  const Tensor places =
      (coupling * by_window(parents, next).unsqueeze(2)).sum(3).flatten(1);  // [B, P * Iw]
  const Tensor child = trace.windows.to(coupling.device()).flatten();        // [P * Iw]
  const Tensor sum = sum_over_windows(places, trace);
  const Tensor covered =
      torch::zeros({sum.size(1)}, sum.options()).index_add(0, child, torch::ones_like(places[0]));
  return sum / covered.clamp_min(1);
}

Evidence evidence_for(const std::vector<RoutingTrace>& routings, size_t layer,
                      const Tensor& classes) {
  check(layer < routings.size(), "routing layer {} asked for; the network has {}", layer,
        routings.size());
  const RoutingTrace& trace = routings[layer];
  check(trace.contribution.defined(), "{}: the forward pass kept no contributions", trace.layer);
  const Tensor& contribution = trace.contribution;
  const Tensor of_bias = trace.bias_contribution.to(torch::kDouble);
  if (layer + 1 == routings.size()) {
    check(!trace.convolutional(), "{}: class capsules with windows have no single place",
          trace.layer);
    return {couplings_to(contribution, classes).to(torch::kDouble),
            of_bias.gather(1, classes.view({-1, 1})).squeeze(1)};
  }
  const RoutingTrace& next = routings[layer + 1];
  if (!is_chain(trace, next)) not_a_chain(trace, next);
  const Evidence above = evidence_for(routings, layer + 1, classes);
  // ||s_k||, [B, K] or [B, P, J]
  const Tensor evidence = contribution.sum(-2, /*keepdim=*/false, torch::kDouble) + of_bias;
  const Tensor parents = trace.convolutional() ? by_window(above.children, next) : above.children;
  // What a parent contributes to the class for each unit of its evidence. A parent of length 0
  // contributes nothing.
  const Tensor worth =
      torch::where(evidence.gt(0), parents / evidence, torch::zeros_like(evidence));
  const Tensor places = (contribution * worth.to(contribution.scalar_type()).unsqueeze(-2))
                            .sum(-1, /*keepdim=*/false, torch::kDouble)
                            .flatten(1);
  return {trace.convolutional() ? sum_over_windows(places, trace) : places,
          above.bias + (of_bias * worth).flatten(1).sum(1)};
}

size_t first_chained_layer(const std::vector<RoutingTrace>& routings) {
  check(!routings.empty(), "the network has no routing layer");
  size_t first = routings.size() - 1;
  while (first > 0 && is_chain(routings[first - 1], routings[first])) --first;
  return first;
}

Tensor carries_half(const Tensor& contributions) {
  const Sorted sorted = sorted_shares(contributions);
  // A share that rounding error puts a hair below a half is not completed by one more capsule.
  const Tensor carries = sorted.before.lt(0.5 - 1e-9).logical_and(sorted.share.gt(0));
  return torch::zeros_like(carries).scatter(-1, sorted.order, carries);
}

EffectiveParts effective_parts(const Tensor& contributions) {
  const Tensor share = sorted_shares(contributions).share;
  const Tensor entropy = torch::xlogy(share, share).sum(-1).neg();
  const Tensor any = share.sum(-1).gt(0);
  return {carries_half(contributions).sum(-1),
          torch::where(any, entropy.exp(), torch::zeros_like(entropy))};
}

}  // namespace remcaps
