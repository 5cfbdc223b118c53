// The paper's network for Tiny ImageNet: capsules on a frozen, pretrained ResNet-18.
#pragma once

#include "remcaps/models/resnet18.h"
#include "remcaps/models/stacked_capsnet.h"

namespace remcaps {

struct Resnet18CapsNetOptions {
  /// A safetensors file with torchvision's ResNet-18 weights; empty: random weights.
  std::string backbone_weights = {};
  bool freeze = true;  ///< do not train the backbone; its batch norms stay in evaluation mode
  int64_t pad = 6;     ///< zeros around the backbone's map (at 224 pixels 7x7 becomes 19x19)
  int64_t primary_types = 1, primary_dim = 8;
  int64_t primary_kernel = 9, primary_stride = 2;
  int64_t class_dim = 16;
  RoutingPtr routing = DynamicRouting{};
  DecoderOptions decoder = {};
};
void bind(ConfigSection& section, Resnet18CapsNetOptions& options, const ModelContext& context);

/// backbone -> ReLU -> zero padding -> primary -> class.
/// Parameters:
///   backbone.*                  torchvision's names
///   primary.conv.{weight,bias}
///   class.{weight,bias}
class Resnet18CapsNet : public StackedCapsNet {
 public:
  Resnet18CapsNet(const ModelContext& context, const Resnet18CapsNetOptions& options);

  /// A frozen backbone stays in evaluation mode.
  void train(bool on = true) override;

 protected:
  Tensor children(const Tensor& images, RoutingRecorder& recorder) override;
  std::string describe_children(NetworkGraph& graph) const override;

 private:
  Resnet18CapsNetOptions options_;
  ResNet18 backbone_{nullptr};
  PrimaryCaps primary_{nullptr};
};

}  // namespace remcaps
