// The operations of a NetworkGraph as ONNX nodes. Maps are [N, C, H, W], capsules [N, I, D].
#pragma once

#include "remcaps/onnx/builder.h"
#include "remcaps/runtime/operation.h"

namespace remcaps::onnx_export {

/// A node of the graph that the runtime has checked, and what it reads.
struct Source {
  const runtime::NodeReader& reader;
  std::vector<std::string> inputs;  ///< ONNX names
  runtime::ValueShape shape;        ///< of the output
  runtime::RoutingInfo routing = {};
};

/// What a routing layer gives.
struct Routed {
  std::string poses;      ///< capsules, or a map
  std::string couplings;  ///< [N, P, I, J], rounded if there are levels
};

/// x times its squash factor over the axes.
std::string squash(Builder& builder, const std::string& value, const std::vector<int64_t>& axes,
                   kernels::SquashForm form, float epsilon);

/// An operation that does not route.
std::string add_layer(Builder& builder, const Source& source);
/// One that does, unrolled. `levels` may be null.
Routed add_routing(Builder& builder, const Source& source, const Quantizer* levels);

}  // namespace remcaps::onnx_export
