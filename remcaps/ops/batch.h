// Batches and the sums of a step on a GPU, one kernel each. The plain versions are thirty launches
// of a few microseconds.
#pragma once

#include <torch/types.h>

#include <vector>

namespace remcaps {

/// How images are augmented and normalised.
struct PixelAugment {
  int64_t shift = 0;  ///< by up to so many pixels in each direction
  bool flip = false;
  std::vector<double> mean, deviation;  ///< one number for all channels, or one per channel
};

/// An epoch: its order, int64 [N], and for each sample uniform random numbers, float32 [N].
struct EpochDraws {
  torch::Tensor order, row, column, flip;
};

struct FusedBatch {
  torch::Tensor indices, labels, images;  ///< int64 [B], int64 [B], float32 [B, C, H, W]
};

/// Whether there is a kernel for this data set (uint8 [N, C, H, W]).
bool has_fused_batch(const torch::Tensor& images);

/// Batch `step` (int64 [1], on the device) of the epoch.
FusedBatch fused_batch(const torch::Tensor& images, const torch::Tensor& labels,
                       const EpochDraws& draws, const torch::Tensor& step, int64_t batch,
                       const PixelAugment& augment);

/// Images [first, first + count), normalised and not augmented.
FusedBatch fused_evaluation_batch(const torch::Tensor& images, const torch::Tensor& labels,
                                  int64_t first, int64_t count, const PixelAugment& augment);

/// Whether there is a kernel for the sums: float32 loss [] and activations [B, J], on a GPU.
bool has_fused_sums(const torch::Tensor& loss, const torch::Tensor& activations);

/// In place: loss_sum (float64 []) += B loss, correct (int64 []) += right answers, and if the loss
/// is not finite bad_step (int64 []) = min(bad_step, step), with `step` int64 [1].
void add_to_fused_sums(const torch::Tensor& loss, const torch::Tensor& activations,
                       const torch::Tensor& labels, const torch::Tensor& step,
                       const torch::Tensor& loss_sum, const torch::Tensor& correct,
                       const torch::Tensor& bad_step);

/// The loss and the number of right answers as float32 [2], for processes to add up.
torch::Tensor fused_totals(const torch::Tensor& loss, const torch::Tensor& activations,
                           const torch::Tensor& labels);

/// Whether there is a kernel for sums of such totals.
bool has_fused_totals(const torch::Tensor& totals);

/// add_to_fused_sums() for a batch of `count` images of which only the totals are known.
void add_fused_totals(const torch::Tensor& totals, int64_t count, const torch::Tensor& step,
                      const torch::Tensor& loss_sum, const torch::Tensor& correct,
                      const torch::Tensor& bad_step);

/// In place: batch_loss (float32 []) = loss, and confusion (int64 [J * J], rows are labels) counts
/// the answers.
void add_to_fused_evaluation(const torch::Tensor& loss, const torch::Tensor& activations,
                             const torch::Tensor& labels, const torch::Tensor& batch_loss,
                             const torch::Tensor& confusion);

}  // namespace remcaps
