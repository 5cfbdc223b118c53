// Collects the traces of a network's routing layers during one forward pass.
#pragma once

#include <vector>

#include "remcaps/capsule/forward.h"
#include "remcaps/capsule/routing/routing.h"

namespace remcaps {

/// Gives each routing layer, in order, its request and keeps its trace:
///
///   RoutingRecorder recorder("my-net", options, /*routing_layers=*/1);
///   const RoutingResult result = class_->forward(children, recorder.next());
///   recorder.record("class", children, result, {grid});
///   forward.routings = recorder.take();
class RoutingRecorder {
 public:
  /// Error if options.quantizers is not empty and does not have one entry per routing layer.
  RoutingRecorder(const std::string& network, const ForwardOptions& options, size_t routing_layers);

  /// The request of the next routing layer.
  RoutingRequest next();

  /// Keeps the trace of a layer if traces are wanted. `children` [B, I, D] are the layer's inputs.
  /// `windows` is for convolutional layers (see RoutingTrace).
  void record(const std::string& layer, const Tensor& children, const RoutingResult& result,
              std::vector<CapsuleGrid> grids = {}, const Tensor& windows = {});

  /// Whether traces are wanted. If not, a network can skip the work that only they need.
  bool tracing() const { return options_.trace; }

  std::vector<RoutingTrace> take() { return std::move(traces_); }

 private:
  const ForwardOptions& options_;
  size_t layer_ = 0;
  std::vector<RoutingTrace> traces_;
};

}  // namespace remcaps
