// Weights files: a network's tensors, with metadata that is enough to use them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/models/model.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/compressed.h"

namespace remcaps {

/// The key in the metadata of a file that only the runtime reads: what export has changed, "compact",
/// "static routing", "8-bit weights".
constexpr const char* kCompactMetadata = "compact";

/// The parameters and buffers of a network by name: the tensors of a weights file.
TensorMap weights_of(const CapsNet& model);

/// How many numbers the tensors have together.
int64_t numbers_in(const TensorMap& tensors);

/// Copies tensors into a network. Error, naming `source`, if a tensor is missing, unknown, has
/// another shape or type, or is not finite. The network does not change then.
void load_weights(CapsNet& model, const TensorMap& tensors, const std::string& source);

/// The metadata of a weights file: enough to use it without its run folder.
struct WeightsInfo {
  Recipe recipe;
  ModelContext context;  ///< input shape, classes, normalisation
  std::vector<std::string> class_names;
  int64_t epoch = 0;
};

/// Writes a network's weights atomically, with `info` as metadata.
void save_weights(const std::filesystem::path& path, const CapsNet& model, const WeightsInfo& info);

/// The inference graph of a network, with all that a program without libtorch needs beside the
/// tensors. Nothing if the network cannot be described.
std::optional<NetworkGraph> inference_graph(const CapsNet& model, const WeightsInfo& info);

/// The bytes of a file with compressed weights, with `graph` if there is one. `card` is JSON with
/// their accuracy and other results.
std::string exported_bytes(const CompressedTensors& weights, const WeightsInfo& info,
                           const std::optional<NetworkGraph>& graph, const std::string& card);

/// Writes such a file.
void save_compressed_weights(const std::filesystem::path& path, const CompressedTensors& weights,
                             const WeightsInfo& info, const std::optional<NetworkGraph>& graph,
                             const std::string& card);

/// Error if the file is not a weights file of this program.
WeightsInfo read_weights_info(const SafetensorsFile& file);

}  // namespace remcaps
