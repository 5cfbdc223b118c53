// What the tests of the routing kernels share: problems, and random inputs to them.
#pragma once

#include <torch/types.h>
#include <torch/utils.h>

#include <ostream>
#include <string>

#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"

namespace remcaps {

struct RoutingCase {
  const char* name;
  int64_t batch, children, parents, child_dim, parent_dim;
  int64_t iterations = 3;
  BiasUse bias = BiasUse::kEvery;
};

inline std::ostream& operator<<(std::ostream& out, const RoutingCase& c) {
  return out << c.name;
}

/// Leaves with the same values for both paths.
struct RoutingInputs {
  Tensor children, weight, bias;

  /// Pruned: some blocks W_ij and one whole child and parent.
  static RoutingInputs random(const RoutingCase& c, bool pruned = false) {
    torch::manual_seed(c.batch * 1000 + c.children);
    RoutingInputs inputs;
    inputs.children = torch::randn({c.batch, c.children, c.child_dim}) * 0.5;
    inputs.weight = torch::randn({c.children, c.parents, c.parent_dim, c.child_dim}) * 0.3;
    if (c.bias != BiasUse::kNone) inputs.bias = torch::randn({c.parents, c.parent_dim}) * 0.2;
    if (pruned) {
      inputs.weight *= (torch::rand({c.children, c.parents, 1, 1}) < 0.4);
      inputs.weight.select(0, c.children / 2).zero_();
      inputs.weight.select(1, c.parents / 2).zero_();
    }
    return inputs;
  }

  RoutingInputs leaves(torch::ScalarType type, const std::string& device) const {
    const auto leaf = [&](const Tensor& tensor) {
      return tensor.defined() ? tensor.to(torch::Device(device), type).clone().requires_grad_()
                              : Tensor();
    };
    return {leaf(children), leaf(weight), leaf(bias)};
  }
};

}  // namespace remcaps
