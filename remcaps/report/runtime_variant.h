// Exported networks that answer otherwise than the trained one: with weights of 8 bits, or with
// couplings that are the same for all images. Only the runtime reads them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remcaps/data/dataset.h"
#include "remcaps/runtime/compact.h"
#include "remcaps/runtime/network.h"
#include "remcaps/torch/compressed.h"

namespace remcaps {

/// The tensors of a network as a file holds them: half precision where that loses nothing, else
/// float32. `bytes`: weights of convolutions and matrices in 8 bits (tensors/compressed.h).
CompressedTensors compress_network(const NetworkData& network, bool bytes);

/// The couplings of the last routing layer as a mean over images of a split, [I, J]. Ten thousand
/// images at most, evenly spaced.
FloatTensor mean_couplings(const runtime::Network& network, const Dataset& images);

/// The network with these couplings in place of the iterations of its last routing layer. Error if
/// that layer has no iterations.
void fix_couplings(NetworkData& network, FloatTensor couplings);

/// What the runtime gives for a split: accuracy and, if the last layer is quantized,
/// accuracy_quantized, entropy, entropy_std_over_classes and median_keys, as in a card.
nlohmann::json measure_with_runtime(const runtime::Network& network, const Dataset& images,
                                    const std::function<void(int64_t)>& on_progress);

}  // namespace remcaps
