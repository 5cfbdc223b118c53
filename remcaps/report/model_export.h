// A trained network as one small file with a card that says how good it is.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "remcaps/training/load.h"

namespace remcaps {

struct ModelExport {
  std::filesystem::path weights, card;
  nlohmann::json numbers;  ///< of the packed network on the test split, with the keys of `eval`
};

/// Packs the weights (tensors/packed.h), measures the network that the packed file holds, and
/// writes the file and, beside it, its card in Markdown. The run's own network has the packed
/// weights afterwards. `on_progress` counts images, two passes over the test split.
ModelExport export_model(LoadedRun& run, const DataSplits& data, const std::filesystem::path& out,
                         const std::function<void(int64_t)>& on_progress = {});

}  // namespace remcaps
