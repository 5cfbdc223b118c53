// Efficient-CapsNet (Mazzia et al.): a small backbone, 16 primary capsules, self-attention routing.
#pragma once

#include "remcaps/capsule/routing/self_attention.h"
#include "remcaps/models/eff_backbone.h"

namespace remcaps {

/// The defaults are the published network for MNIST.
struct EffCapsNetOptions {
  EffBackboneOptions backbone = {};
  int64_t primary_kernel = 0;  ///< of the depthwise layer; 0: as large as its map
  int64_t primary_stride = 1;
  int64_t primary_dim = 8;
  int64_t class_dim = 16;
  RoutingPtr routing = SelfAttentionRouting{};
  DecoderOptions decoder = {};

  /// The published network for smallNORB: another backbone.
  static EffCapsNetOptions smallnorb();
};
/// The key `variant` chooses the defaults of the other keys: "mnist", "smallnorb" or "auto", which
/// is smallnorb for images of two channels (stereo pairs) and mnist for others.
void bind(ConfigSection& section, EffCapsNetOptions& options, const ModelContext& context);

/// conv1, norm1, ..., conv4, norm4 -> primary (depthwise) -> class.
/// Parameters:
///   convN.{weight,bias}, normN.{weight,bias}
///   primary.conv.{weight,bias}
///   class.{weight,prior}
class EffCapsNet : public EffBackboneCapsNet {
 public:
  EffCapsNet(const ModelContext& context, const EffCapsNetOptions& options);
};

}  // namespace remcaps
