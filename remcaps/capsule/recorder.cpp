#include "remcaps/capsule/recorder.h"

#include "remcaps/base/error.h"

namespace remcaps {

RoutingRecorder::RoutingRecorder(const std::string& network, const ForwardOptions& options,
                                 size_t routing_layers)
    : options_(options) {
  check(options.quantizers.empty() || options.quantizers.size() == routing_layers,
        "{}: {} quantizers given; it has {} routing layer(s)", network, options.quantizers.size(),
        routing_layers);
}

RoutingRequest RoutingRecorder::next() {
  RoutingRequest request;
  if (!options_.quantizers.empty()) request.quantizer = options_.quantizers.at(layer_);
  request.coupling = options_.trace;
  request.contributions = options_.trace && options_.contributions;
  ++layer_;
  return request;
}

void RoutingRecorder::record(const std::string& layer, const Tensor& children,
                             const RoutingResult& result, std::vector<CapsuleGrid> grids,
                             const Tensor& windows) {
  if (!options_.trace) return;
  RoutingTrace trace;
  trace.layer = layer;
  trace.coupling = result.coupling.detach();
  trace.child_activations = children.detach().norm(2, -1);
  trace.children = children;
  trace.contribution = result.contribution;
  trace.bias_contribution = result.bias_contribution;
  if (windows.defined()) trace.windows = windows.to(result.coupling.device());
  trace.grids = std::move(grids);
  trace.clamped = result.clamped.defined() ? result.clamped.item<int64_t>() : 0;
  traces_.push_back(std::move(trace));
}

}  // namespace remcaps
