// Passes of a network over a split of a data set.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "remcaps/capsule/forward.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/data/batches.h"
#include "remcaps/evaluation/phase_clock.h"
#include "remcaps/models/model.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/recipe/recipe.h"
#include "remcaps/torch/compat.h"
#include "remcaps/torch/device_graph.h"
#include "remcaps/torch/process_group.h"

namespace remcaps {

struct EvaluateOptions {
  /// Images are taken in the order of the data set. gamma-CapsNet's routing depends on the whole
  /// batch; the published numbers use 128, whatever the training batch is.
  int64_t batch = 128;
  MarginOptions margin;
  /// Weight of the reconstruction error in the loss. Not used if the network has no decoder.
  double reconstruction = 0;
  /// Bfloat16 convolutions and float32 routing, on a GPU or a CPU with AMX.
  bool bf16 = false;
  /// What computes the margin loss.
  KernelPath kernels = KernelPath::kFused;
  /// Traces and quantizers, if wanted.
  ForwardOptions forward;
  /// Called for every batch, with tensors on the device.
  std::function<void(const Batch&, const Forward&)> on_batch;
  /// A second forward pass of every batch, for example with quantized couplings. It does not change
  /// the loss and the confusion matrix. What both passes share is computed once. `on_second` is
  /// called before `on_batch`.
  std::optional<ForwardOptions> second;
  std::function<void(const Batch&, const Forward&)> on_second;
  /// If given, it times the phases of a batch.
  PhaseClock* clock = nullptr;
  /// If given, every process takes some of the batches. All get the same result: for the same
  /// weights that of one process, bit for bit.
  ProcessGroup* group = nullptr;
  /// Called after every batch with the number of images done. It may throw to end the pass.
  std::function<void(int64_t)> on_progress;
};

/// The margins, precision and kernels of a recipe in an epoch. A recipe's bf16 is for a GPU only:
/// on a CPU every run is float32.
EvaluateOptions evaluation_options(const Recipe& recipe, int64_t epoch, torch::Device device);

/// While it exists, forward passes without gradients use the precision of `EvaluateOptions::bf16`.
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
  double batch_mean_loss = 0;  ///< mean of the batches' means: the published val_loss
  double accuracy = 0;         ///< 0..1
  torch::Tensor confusion;  ///< images of true class (row) predicted as class (column), int64 CPU
};

/// The rows of an int64 matrix on the CPU, as of a confusion matrix.
std::vector<std::vector<int64_t>> rows_of(const torch::Tensor& matrix);

/// One pass in evaluation mode, without gradients and augmentation. Sums stay on the device until
/// the end. Afterwards the network is in the mode it was in.
Evaluation evaluate(CapsNet& model, const BatchSource& source, const EvaluateOptions& options);

/// Only the mean of the margin loss over the images: what a threshold search compares. It uses the
/// options batch, margin, bf16, kernels, group and on_progress.
double evaluate_margin_loss(CapsNet& model, const BatchSource& source,
                            const EvaluateOptions& options);

/// Results of the batches of a pass, on their device. The host adds the losses up in the order of
/// the batches, so the sum does not depend on how many batches ran at once.
struct EvaluationSums {
  torch::Tensor losses;     ///< float32 [batches], the mean loss of each
  torch::Tensor confusion;  ///< int64 [streams, classes * classes]

  static EvaluationSums zeros(int64_t batches, int64_t streams, int64_t classes,
                              torch::Device device);
  int64_t streams() const { return confusion.size(0); }
  /// The sums of all processes. In each process, the batches of the others are zero.
  EvaluationSums of_all(ProcessGroup* group) const;
};

/// Repeats evaluate() while the weights change in place. On a GPU every pass, also the first, is a
/// replay of a CUDA graph, so that all losses are computed in the same way. Two batches run at a
/// time, because one does not fill a GPU.
class EvaluationPass {
 public:
  /// Uses the options batch, margin, reconstruction, bf16, kernels and group. Without `record`, or
  /// if recording is not possible, a pass is a call of evaluate(). The network and the images must
  /// outlive it.
  EvaluationPass(CapsNet& model, const BatchSource& source, const EvaluateOptions& options,
                 bool record);

  Evaluation run();
  /// Only Evaluation::loss.
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

/// Images per batch of the threshold search: 128, or more on a GPU if the result does not depend on
/// it and memory allows.
int64_t search_batch(const CapsNet& model, torch::Device device);

}  // namespace remcaps
