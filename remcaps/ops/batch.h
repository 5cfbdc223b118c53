// A batch and its sums, a kernel each: on a GPU, where the plain versions are thirty launches of a
// few microseconds.
#pragma once

#include <torch/types.h>

#include <vector>

namespace remcaps {

/// What is drawn for an image, and how its pixels are normalised.
struct PixelAugment {
  int64_t shift = 0;
  bool flip = false;
  std::vector<double> mean, deviation;  ///< one for all channels, or one for each
};

/// An epoch: order int64 [N], and uniform numbers float32 [N] by sample.
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

/// Images [first, first + count) as they are, normalised; of `augment` mean and deviation count.
FusedBatch fused_evaluation_batch(const torch::Tensor& images, const torch::Tensor& labels,
                                  int64_t first, int64_t count, const PixelAugment& augment);

/// Whether there is a kernel for a batch's sums: float32 loss [] and activations [B, J].
bool has_fused_sums(const torch::Tensor& loss, const torch::Tensor& activations);

/// In place: loss_sum (float64 []) += B loss, correct (int64 []) += right answers, and
/// bad_step (int64 []) becomes `step` (int64 [1]) if that is less and the loss not finite.
void add_to_fused_sums(const torch::Tensor& loss, const torch::Tensor& activations,
                       const torch::Tensor& labels, const torch::Tensor& step,
                       const torch::Tensor& loss_sum, const torch::Tensor& correct,
                       const torch::Tensor& bad_step);

/// In place: batch_loss (float32 []) becomes the loss, and confusion (int64 [J * J], the labels in
/// rows) counts the answers.
void add_to_fused_evaluation(const torch::Tensor& loss, const torch::Tensor& activations,
                             const torch::Tensor& labels, const torch::Tensor& batch_loss,
                             const torch::Tensor& confusion);

}  // namespace remcaps
