// One streaming pass of a network over a data set.
#pragma once

#include <functional>
#include <optional>

#include "remcaps/capsule/forward.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/data/batches.h"
#include "remcaps/evaluation/phase_clock.h"
#include "remcaps/models/model.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/compat.h"
#include "remcaps/torch/device_graph.h"

namespace remcaps {

struct EvaluateOptions {
  /// Batches in the data set's own order. gamma-CapsNet's routing looks at the whole batch: the
  /// published numbers are at 128, whatever the training batch is.
  int64_t batch = 128;
  MarginOptions margin;
  /// Weight of the reconstruction error in the loss; 0, or a network without a decoder: none.
  double reconstruction = 0;
  /// Bfloat16 convolutions, float32 routing: on a GPU or a CPU with AMX.
  bool bf16 = false;
  /// Who computes the margin loss.
  KernelPath kernels = KernelPath::kFused;
  /// Traces and quantizers, where they are wanted.
  ForwardOptions forward;
  /// Called for every batch, on the device and before anything is read back.
  std::function<void(const Batch&, const Forward&)> on_batch;
  /// A second forward pass of every batch, with quantized couplings say. It takes no part in the
  /// loss and the confusion matrix; what it shares with the first is computed once. `on_second`
  /// hears of a batch before `on_batch` does.
  std::optional<ForwardOptions> second;
  std::function<void(const Batch&, const Forward&)> on_second;
  /// Times the phases of a batch, where there is one.
  PhaseClock* clock = nullptr;
  /// Images done so far, for a progress bar.
  std::function<void(int64_t)> on_progress;
};

/// As a recipe has it after so many epochs: its margins, precision and kernels. A recipe's bf16 is
/// for a GPU: on a CPU a run is float32, the same on every one.
EvaluateOptions evaluation_options(const Recipe& recipe, int64_t epoch, torch::Device device);

/// As long as it lives forward passes without gradients are made as `EvaluateOptions::bf16` says.
class EvaluationPrecision {
 public:
  EvaluationPrecision(bool bf16, torch::Device device)
      : autocast_(bf16 && device.is_cuda(), device), convolutions_(bf16 && device.is_cpu()) {}

 private:
  Autocast autocast_;
  Bf16Convolutions convolutions_;
};

struct Evaluation {
  int64_t samples = 0;
  double loss = 0;             ///< mean over images
  double batch_mean_loss = 0;  ///< unweighted mean of the batches' means: the published val_loss
  double accuracy = 0;         ///< 0..1
  torch::Tensor confusion;  ///< images of true class (row) predicted as class (column), int64 CPU
};

/// Evaluation mode, no gradients, no augmentation. Sums stay on the device: one synchronisation at
/// the end. The network is left in the mode it was in.
Evaluation evaluate(CapsNet& model, const BatchSource& source, const EvaluateOptions& options);

/// Only the sample-weighted mean of the margin loss: what a threshold search compares. Of the
/// options batch, margin, bf16 and kernels count.
double evaluate_margin_loss(CapsNet& model, const BatchSource& source,
                            const EvaluateOptions& options);

/// What the batches of a pass leave behind, on their device. Losses are added up on the host, in
/// the order of the batches: the sum does not depend on how many of them ran at once.
struct EvaluationSums {
  torch::Tensor losses;     ///< float32 [batches]: the mean of each
  torch::Tensor confusion;  ///< int64 [streams, classes * classes]

  static EvaluationSums zeros(int64_t batches, int64_t streams, int64_t classes,
                              torch::Device device);
  int64_t streams() const { return confusion.size(0); }
};

/// evaluate() again and again, while the weights change where they lie. On a GPU every pass is a
/// replay of a CUDA graph of the whole, the first one too: losses that are compared are made alike.
/// Two of its batches are under way at a time, since one does not fill a GPU.
class EvaluationPass {
 public:
  /// Of the options batch, margin, reconstruction, bf16 and kernels count. Without `record`, or
  /// where nothing can be recorded, a pass is evaluate()'s. The network and the images must outlive
  /// it.
  EvaluationPass(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                 bool record);

  Evaluation run();
  /// Evaluation::loss alone.
  double loss();

 private:
  void pass();
  void work();

  CapsNet& model_;
  const BatchSource& source_;
  EvaluateOptions options_;
  bool records_;
  EvaluationSums sums_;
  DeviceGraph graph_;
};

/// Images in a batch of the threshold search: 128, and more on a GPU, which 128 do not fill, where
/// the result does not depend on it and memory allows.
int64_t search_batch(const CapsNet& model, torch::Device device);

}  // namespace remcaps
