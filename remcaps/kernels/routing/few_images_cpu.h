// Dynamic routing of few images on the CPU, without a gradient: votes are made once, by matrices
// that were laid out for it beforehand, and kept for all iterations.
#pragma once

#include <cstdint>

#include "remcaps/kernels/routing/layout_cpu.h"
#include "remcaps/kernels/routing/problem.h"

namespace remcaps::kernels::cpu {

/// Up to how many images this is faster than dynamic_routing_forward(), which takes as long for one
/// as for as many as a vector has lanes.
int64_t most_few_images();

/// The matrices W_ij of a layer, laid out in groups of one child per lane.
class ChildMatrices {
 public:
  /// weight [I, J, D_out, D_in], of which a copy is kept. The shape's batch does not matter.
  ChildMatrices(const RoutingShape& shape, const float* weight);

  const RoutingShape& shape() const { return shape_; }
  /// Of a group of children, [J, D_out, D_in, L].
  const float* group(int64_t g) const { return packed_.get() + g * group_floats_; }

 private:
  RoutingShape shape_;
  int64_t group_floats_;
  Buffer packed_;
};

/// As dynamic_routing_forward(): poses [B, J, D_out]; couplings [B, I, J] or null. An image's
/// result depends neither on the others nor on the number of threads.
void few_images_forward(const RoutingShape& shape, const RoutingRule& rule, const float* children,
                        const ChildMatrices& matrices, const float* bias, float* poses,
                        float* couplings);

}  // namespace remcaps::kernels::cpu
