// Efficient-CapsNet (Mazzia et al.): a small backbone, 16 capsules, self-attention routing.
#pragma once

#include "remcaps/models/eff_backbone.h"

namespace remcaps {

struct EffCapsNetOptions {
  /// "mnist", "smallnorb", "multimnist": the published backbones. "auto": smallnorb for two-channel
  /// (stereo) images, mnist otherwise. Sets the defaults of everything below.
  std::string variant = "auto";
  EffBackboneOptions backbone;
  int64_t primary_kernel = 0;  ///< of the depthwise layer; 0: its whole map
  int64_t primary_stride = 1;
  int64_t primary_dim = 8;
  int64_t class_dim = 16;
  RoutingOptions routing = SelfAttentionRouting{};
  DecoderOptions decoder;
};
void bind(ConfigSection& section, EffCapsNetOptions& options, const ModelContext& context);

/// conv1, norm1, ..., conv4, norm4 -> primary (depthwise) -> class.
/// Parameters: convN.{weight,bias}, normN.{weight,bias}, primary.conv.{weight,bias}, class.weight,
/// class.prior.
class EffCapsNet : public EffBackboneCapsNet {
 public:
  EffCapsNet(const ModelContext& context, const EffCapsNetOptions& options);
};

}  // namespace remcaps
