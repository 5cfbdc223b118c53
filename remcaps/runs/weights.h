// Weights files: a network's tensors, with metadata that is enough to use them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/models/model.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/packed.h"

namespace remcaps {

/// Parameters and buffers by name: what a weights file holds.
TensorMap weights_of(const CapsNet& model);

/// Copies tensors into a network. Error, naming `source`: a tensor that is missing, left over, of
/// another shape or type, or not finite.
void load_weights(CapsNet& model, const TensorMap& tensors, const std::string& source);

/// What a weights file says of itself besides its tensors: enough to use it without its run folder.
struct WeightsInfo {
  Recipe recipe;
  ModelContext context;  ///< input shape, classes, normalisation
  std::vector<std::string> class_names;
  int64_t epoch = 0;
};

/// Writes weights atomically, with `info` as metadata.
void save_weights(const std::filesystem::path& path, const CapsNet& model, const WeightsInfo& info);

/// The same for weights that are packed already; `card` is JSON that says how good they are.
void save_packed_weights(const std::filesystem::path& path, const PackedTensors& weights,
                         const WeightsInfo& info, const std::string& card);

/// Error where the file is no weights file of this program.
WeightsInfo read_weights_info(const SafetensorsFile& file);

}  // namespace remcaps
