// What all the project's networks have in common: a backbone that ends in child capsules, and fully
// connected capsule layers on top of it, the last of which are the classes.
#pragma once

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/recorder.h"
#include "remcaps/models/network_plan.h"

namespace remcaps {

class StackedCapsNet : public CapsNet {
 public:
  Forward forward(const Tensor& images, const ForwardOptions& options) override;
  using CapsNet::forward;
  std::pair<Forward, Forward> forward_both(const Tensor& images, const ForwardOptions& first,
                                           const ForwardOptions& second) override;

  std::vector<RoutingLayer> routing_layers() const override { return routing_layers_; }
  std::vector<LayerCost> costs() const override { return plan_.rows(); }
  std::vector<std::string> prunable_layers() const override { return prunable_; }
  bool images_are_independent() const override;

 protected:
  StackedCapsNet(const std::string& name, const ModelContext& context);

  /// The backbone: images [B, C, H, W] -> child capsules [B, I, D]. Routing layers of its own take
  /// their request from the recorder and record themselves there.
  virtual Tensor children(const Tensor& images, RoutingRecorder& recorder) = 0;

  /// A convolution that is registered, planned and prunable under one name.
  Convolution add_conv(const std::string& layer, const ConvShape& shape,
                       const std::string& then = "", int64_t kept = 1);
  PrimaryCaps add_primary(const std::string& layer, PrimaryCapsOptions options);
  /// The next fully connected capsule layer; the last one added gives the classes.
  FcCaps add_capsules(const std::string& layer, FcCapsOptions options);
  /// The recipe's decoder, once the class capsules are there.
  void finish(const DecoderOptions& decoder);

  /// A routing layer inside the backbone.
  void announce(RoutingLayer layer) { routing_layers_.push_back(std::move(layer)); }
  void add_prunable(const std::string& layer) { prunable_.push_back(layer); }
  /// Where the children lie (none where their map is a single place).
  void set_grids(std::vector<CapsuleGrid> grids);

  NetworkPlan& plan() { return plan_; }
  const ModelContext& context() const { return context_; }

  /// ||v_j|| = sqrt(sum + epsilon); Efficient-CapsNet has 1e-7, the others the plain norm.
  double activation_epsilon_ = 0.0;

 private:
  /// Error where images are not of the network's input shape.
  void check_images(const Tensor& images) const;
  /// From child capsules [B, I, D] up to the classes.
  Forward route_up(Tensor capsules, RoutingRecorder& recorder, const ForwardOptions& options);

  ModelContext context_;
  NetworkPlan plan_;
  std::vector<std::string> layer_names_;
  std::vector<FcCaps> layers_;
  std::vector<RoutingLayer> routing_layers_;
  std::vector<std::string> prunable_;
  std::vector<CapsuleGrid> grids_;
};

/// Binds the recipe's `routing` section of a network: `algorithm` (default: what `routing` holds)
/// and the keys of that algorithm.
void bind_routing(ConfigSection& section, RoutingOptions& routing);
/// The keys of dynamic routing alone, under `name`.
void bind_routing(ConfigSection& section, const std::string& name, DynamicRouting& routing);
/// "last" or "full".
void bind_gradient(ConfigSection& section, RoutingGradient& gradient);
/// The same algorithm on another path.
RoutingOptions with_kernels(RoutingOptions routing, KernelPath kernels);

}  // namespace remcaps
