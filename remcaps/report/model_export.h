// A trained network as one small file with a card that says how good it is.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "remcaps/runs/load.h"

namespace remcaps {

struct ModelExport {
  std::filesystem::path weights, card;
  nlohmann::json numbers;
  bool left_nothing_out = false;  ///< it was to be compact, but nothing is dead
};

struct ModelExportOptions {
  std::string data_note = {};  ///< how the data differ from the official ones
  std::string pruned = {};     ///< how it was pruned after its training, for the card
  /// Without what pruning has made dead (runtime/compact.h).
  bool compact = false;
  bool int8_weights = false;
  /// One mean coupling for all images in place of the last layer's iterations.
  bool static_routing = false;

  /// Whether the answers become others. The card then has accuracy and entropy before and after. Such
  /// a file, and a compact one, can be read by the runtime only.
  bool changes_answers() const { return int8_weights || static_routing; }
};

/// Compresses the weights (torch/compressed.h) and measures the network that the compressed file
/// holds. Writes the file and, beside it, its card in Markdown. The run must be on the CPU, so that
/// every user gets the numbers of the card. It has the compressed weights afterwards. `on_progress`
/// counts images of the test split.
ModelExport export_model(LoadedRun& run, const DataSplits& data, const std::filesystem::path& out,
                         const ModelExportOptions& options = {},
                         const std::function<void(int64_t)>& on_progress = {});

/// Writes an exported file once more, as this version writes it. Weights and numbers are the same,
/// so that no data are needed. Error if the run is no exported file.
ModelExport export_again(LoadedRun& run, const std::filesystem::path& out, bool compact = false);

/// Whether a weights file has the numbers of a card: whether it was exported.
bool has_card(const std::filesystem::path& weights);

/// The bytes of a file that holds the network as the runtime reads it, without a card. Nothing if it
/// has no graph. The run has the compressed weights afterwards.
std::optional<std::string> network_for_runtime(LoadedRun& run);

/// The same. Error if the network has no graph, "so that it cannot `purpose`".
std::string network_for_runtime(LoadedRun& run, const std::string& purpose);

/// The numbers of a card: the network's results on its test split, with the keys of `eval`.
nlohmann::json measure_for_card(const LoadedRun& run, const BatchSource& test,
                                const std::function<void(int64_t)>& on_progress = {});

/// The numbers in an exported file's metadata. Error if it has none.
nlohmann::json read_card(const std::filesystem::path& weights);

/// The card in Markdown of an exported file, as export_model() writes it beside the file.
std::string card_text(const std::filesystem::path& weights);

}  // namespace remcaps
