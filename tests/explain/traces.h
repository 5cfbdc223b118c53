// Hand-made forward passes whose explanations can be worked out on paper.
#pragma once

#include "remcaps/capsule/forward.h"

namespace remcaps::testing {

inline Tensor floats(const std::vector<double>& values, torch::IntArrayRef shape) {
  return torch::tensor(values, torch::kDouble).to(torch::kFloat).view(shape);
}

/// (type, y, x) row by row, as the networks lay their capsules out.
inline CapsuleGrid dense_grid(int64_t types, int64_t height, int64_t width, int64_t offset = 0) {
  return {offset, types, height, width, height * width, width, 1};
}

/// A fully connected layer. coupling [B, I, J], activations [B, I].
inline RoutingTrace connected(const std::string& name, const Tensor& coupling,
                              const Tensor& activations, std::vector<CapsuleGrid> grids = {}) {
  RoutingTrace trace;
  trace.layer = name;
  trace.coupling = coupling;
  trace.child_activations = activations;
  trace.grids = std::move(grids);
  return trace;
}

/// Class activations [B, J] on top of some layers.
inline Forward forward_of(const Tensor& activations, std::vector<RoutingTrace> routings) {
  Forward forward;
  forward.activations = activations;
  forward.poses = activations.unsqueeze(2);
  forward.routings = std::move(routings);
  return forward;
}

/// Three layers of 2, 3 and 2 capsules; class 1 is predicted.
///   primary -> hidden   0: (0.8, 0.1, 0.1)    1: (0.0, 0.3, 0.7)
///   hidden -> class     0: (0.1, 0.9)   1: (0.7, 0.3)   2: (0.4, 0.6)
inline Forward small_tree() {
  return forward_of(floats({0.2, 0.9}, {1, 2}),
                    {connected("hidden", floats({0.8, 0.1, 0.1, 0.0, 0.3, 0.7}, {1, 2, 3}),
                               floats({0.5, 0.25}, {1, 2})),
                     connected("class", floats({0.1, 0.9, 0.7, 0.3, 0.4, 0.6}, {1, 3, 2}),
                               floats({0.6, 0.4, 0.3}, {1, 3}))});
}

}  // namespace remcaps::testing
