// A trained network as one small file with a card that says how good it is.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "remcaps/runs/load.h"

namespace remcaps {

struct ModelExport {
  std::filesystem::path weights, card;
  nlohmann::json numbers;
};

/// Packs the weights (tensors/packed.h), measures the network that the packed file holds, and
/// writes the file and, beside it, its card in Markdown. The run is on the CPU, whose float32 is
/// every user's; it has the packed weights afterwards. `data_note` says how the data differ from
/// the official ones. `on_progress` counts images of the test split.
ModelExport export_model(LoadedRun& run, const DataSplits& data, const std::filesystem::path& out,
                         const std::string& data_note = "",
                         const std::function<void(int64_t)>& on_progress = {});

/// How good a network is on its test split, with the keys of `eval`: what a card says of it.
nlohmann::json measure_for_card(const LoadedRun& run, const BatchSource& test,
                                const std::function<void(int64_t)>& on_progress = {});

/// The numbers in an exported file's metadata. Error where it has none.
nlohmann::json read_card(const std::filesystem::path& weights);

/// The card in Markdown of an exported file, as export_model() writes it beside the file.
std::string card_text(const std::filesystem::path& weights);

}  // namespace remcaps
