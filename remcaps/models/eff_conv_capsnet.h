// Eff-ConvCapsNet (the REM paper's own): Efficient-CapsNet's kind of backbone, a convolutional
// capsule layer, class capsules with shared matrices. Made for 128 x 128 images.
#pragma once

#include "remcaps/models/eff_backbone.h"

namespace remcaps {

struct EffConvCapsNetOptions {
  EffBackboneOptions backbone = {{32, 64, 64, 256}, {5, 3, 3, 3}, {2, 1, 1, 2}, "relu", "batch"};
  int64_t primary_kernel = 3;  ///< of the depthwise layer
  int64_t primary_dim = 16;    ///< 256 channels are 16 types of 16
  int64_t conv_caps_types = 16, conv_caps_dim = 16;
  int64_t conv_caps_kernel = 3, conv_caps_stride = 2;
  int64_t class_dim = 16;
  /// Which children share a class matrix: "type" (all places of a type), "all", or "none".
  std::string share = "type";
  /// The paper's s_j has no bias.
  DynamicRouting routing = {.bias = BiasUse::kNone};
  DecoderOptions decoder;
};
void bind(ConfigSection& section, EffConvCapsNetOptions& options, const ModelContext& context);

/// conv1, norm1, ..., conv4, norm4 -> primary (depthwise) -> conv_caps -> class.
/// Parameters: convN, normN, primary.conv, conv_caps.weight, class.weight (and their biases where
/// the routing has them).
class EffConvCapsNet : public EffBackboneCapsNet {
 public:
  EffConvCapsNet(const ModelContext& context, const EffConvCapsNetOptions& options);

 protected:
  Tensor children(const Tensor& images, RoutingRecorder& recorder) override;

 private:
  CapsuleGrid primary_grid_;
  ConvCaps conv_caps_{nullptr};
};

}  // namespace remcaps
