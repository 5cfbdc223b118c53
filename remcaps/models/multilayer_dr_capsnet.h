// The multilayer DR-CapsNet whose parse trees the paper draws: layers of 16, 16, 16, 16 and 10
// capsules, all of 8 numbers.
#pragma once

#include "remcaps/models/eff_backbone.h"

namespace remcaps {

struct MultilayerDrCapsNetOptions {
  EffBackboneOptions backbone = {};
  int64_t capsule_dim = 8;                     ///< of every capsule
  std::vector<int64_t> hidden = {16, 16, 16};  ///< capsules of each hidden layer, first to last
  RoutingPtr routing = DynamicRouting{};
  DecoderOptions decoder = {};
};
void bind(ConfigSection& section, MultilayerDrCapsNetOptions& options, const ModelContext& context);

/// Efficient-CapsNet's backbone and depthwise layer (16 capsules of 8) -> hidden1 -> ... -> class.
/// Parameters: convN, normN, primary.conv, hiddenN.{weight,bias}, class.{weight,bias}.
class MultilayerDrCapsNet : public EffBackboneCapsNet {
 public:
  MultilayerDrCapsNet(const ModelContext& context, const MultilayerDrCapsNetOptions& options);
};

}  // namespace remcaps
