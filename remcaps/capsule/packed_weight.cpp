#include "remcaps/capsule/packed_weight.h"

#include "remcaps/capsule/convolve.h"
#include "remcaps/capsule/fc_caps.h"

namespace remcaps {

void pack_weights(torch::nn::Module& network) {
  for (const auto& module : network.modules()) {
    if (auto* convolution = module->as<ConvolutionImpl>()) convolution->pack();
    if (auto* capsules = module->as<FcCapsImpl>()) capsules->pack();
  }
}

}  // namespace remcaps
