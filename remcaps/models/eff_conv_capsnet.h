// Eff-ConvCapsNet, the REM paper's own network for 128 x 128 images: a backbone like
// Efficient-CapsNet's, a convolutional capsule layer, class capsules with shared matrices.
#pragma once

#include "remcaps/capsule/conv_caps.h"
#include "remcaps/models/eff_backbone.h"

namespace remcaps {

struct EffConvCapsNetOptions {
  /// Which children share a class matrix.
  enum class Share {
    kType,  ///< those of one type
    kAll,
    kNone,
  };
  EffBackboneOptions backbone = {.channels = {32, 64, 64, 256}, .strides = {2, 1, 1, 2}};
  int64_t primary_kernel = 3;  ///< of the depthwise layer
  int64_t primary_dim = 16;    ///< the 256 channels are 16 types of 16 numbers
  int64_t conv_caps_types = 16, conv_caps_dim = 16;
  int64_t conv_caps_kernel = 3, conv_caps_stride = 2;
  int64_t class_dim = 16;
  Share share = Share::kType;
  DynamicRouting routing = {.bias = BiasUse::kNone};  ///< the paper's s_j has no bias
  DecoderOptions decoder = {};
};
void bind(ConfigSection& section, EffConvCapsNetOptions& options, const ModelContext& context);

/// conv1, norm1, ..., conv4, norm4 -> primary (depthwise) -> conv_caps -> class.
/// Parameters:
///   convN.{weight,bias}, normN.{weight,bias}
///   primary.conv.{weight,bias}
///   conv_caps.weight, class.weight  and conv_caps.bias, class.bias if the routing has a bias
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
