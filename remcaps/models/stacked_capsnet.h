// What all built-in networks have in common: a backbone that ends in child capsules, then fully
// connected capsule layers. The last layer's capsules are the classes.
#pragma once

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/fc_caps.h"
#include "remcaps/capsule/primary_caps.h"
#include "remcaps/capsule/recorder.h"
#include "remcaps/models/model.h"

namespace remcaps {

class NetworkPlan;

class StackedCapsNet : public CapsNet {
 public:
  Forward forward(const Tensor& images, const ForwardOptions& options) override;
  using CapsNet::forward;
  std::pair<Forward, Forward> forward_both(const Tensor& images, const ForwardOptions& first,
                                           const ForwardOptions& second) override;

  std::vector<RoutingLayer> routing_layers() const override { return routing_layers_; }
  std::vector<LayerCost> costs() const override;
  std::vector<CapsuleGrid> class_grids() const override {
    return layers_.size() == 1 ? grids_ : std::vector<CapsuleGrid>{};
  }
  std::vector<std::string> prunable_layers() const override { return prunable_; }
  bool images_are_independent() const override;
  /// Whether processes can each train on their share of a batch.
  bool divisible() const;
  std::optional<NetworkGraph> graph() const override;

 protected:
  StackedCapsNet(const std::string& name, const ModelContext& context);

  /// The backbone: images [B, C, H, W] -> child capsules [B, I, D]. A routing layer in the backbone
  /// gets its request from the recorder and records its trace there.
  virtual Tensor children(const Tensor& images, RoutingRecorder& recorder) = 0;

  /// Adds the nodes of children() to a graph and returns the name of the result. Empty: the
  /// backbone cannot be described.
  virtual std::string describe_children(NetworkGraph& graph) const;

  /// Adds a convolution under one name: registered, planned and prunable.
  Convolution add_conv(const std::string& layer, const ConvShape& shape,
                       const std::string& then = "", int64_t kept = 1);
  PrimaryCaps add_primary(const std::string& layer, PrimaryCapsOptions options);
  /// Adds the next fully connected capsule layer. The last one added gives the classes.
  FcCaps add_capsules(const std::string& layer, FcCapsOptions options);
  /// Adds the decoder. Call it after the class capsules have been added.
  void finish(const DecoderOptions& decoder);

  /// Tells of a routing layer in the backbone.
  void announce(RoutingLayer layer) { routing_layers_.push_back(std::move(layer)); }
  void add_prunable(const std::string& layer) { prunable_.push_back(layer); }
  /// Where the children lie. Maps of a single place are left out: they say nothing.
  void set_grids(std::vector<CapsuleGrid> grids);

  /// The map after the layers that were added so far.
  const FeatureMap& feature_map() const;
  NetworkPlan& plan() { return *plan_; }
  const ModelContext& context() const { return context_; }

  /// Lengths are ||v_j|| = sqrt(sum + epsilon). Efficient-CapsNet has 1e-7, the others 0.
  double activation_epsilon_ = 0.0;

 private:
  /// Error if the images do not have the network's input shape.
  void check_images(const Tensor& images) const;
  /// From the child capsules [B, I, D] to the classes.
  Forward route_up(Tensor capsules, RoutingRecorder& recorder, const ForwardOptions& options);

  ModelContext context_;
  std::shared_ptr<NetworkPlan> plan_;
  std::vector<std::string> layer_names_;
  std::vector<FcCaps> layers_;
  std::vector<RoutingLayer> routing_layers_;
  std::vector<std::string> prunable_;
  std::vector<CapsuleGrid> grids_;
};

}  // namespace remcaps
