// Weights files and the full state of a run.
#pragma once

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "remcaps/models/model.h"
#include "remcaps/pruning/pruner.h"
#include "remcaps/torch/packed.h"
#include "remcaps/training/adam.h"
#include "remcaps/training/recipe.h"

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

/// Where a run stands.
struct RunProgress {
  int64_t epoch = 0;     ///< in progress, from 0
  int64_t position = 0;  ///< steps of it that are done
  int64_t step = 0;      ///< steps since the run began
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t best_epoch = -1;
  double validation_accuracy = 0;  ///< of the last epoch that is over
  double seconds = 0;              ///< of training, over all resumes
};

/// Sums over the epoch in progress; tensors on the run's device.
struct EpochSums {
  torch::Tensor loss;      ///< float64, summed over images
  torch::Tensor correct;   ///< int64
  torch::Tensor bad_step;  ///< int64: the first step whose loss was not finite, kNoBadStep if none
  int64_t images = 0;

  static constexpr int64_t kNoBadStep = std::numeric_limits<int64_t>::max();
  static EpochSums zeros(torch::Device device);
  /// Adds step `position`: its batch's mean loss, activations [B, J] and labels [B].
  void add(const torch::Tensor& batch_loss, const torch::Tensor& activations,
           const torch::Tensor& labels, int64_t position);
  /// The same on the device alone, in place, for a position that lies there (int64 [1]): `images`
  /// is left to the caller.
  void add_on_device(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                     const torch::Tensor& labels, const torch::Tensor& position);
};

/// state.safetensors: with it a killed run goes on as if it had never been killed. There is no
/// generator state in it: after initialisation every random number is counter-based.
void save_state(const std::filesystem::path& path, const CapsNet& model, const Adam& adam,
                const Pruner& pruner, const RunProgress& progress, const EpochSums& sums);

/// The reverse; everything must fit.
RunProgress load_state(const std::filesystem::path& path, CapsNet& model, Adam& adam,
                       Pruner& pruner, EpochSums& sums);

}  // namespace remcaps
