// Loss and accuracy of the current epoch, summed on the device.
#pragma once

#include <torch/types.h>

#include <limits>

namespace remcaps {

/// The tensors are on the device of the run.
struct EpochSums {
  torch::Tensor loss;      ///< float64, summed over images
  torch::Tensor correct;   ///< int64
  torch::Tensor bad_step;  ///< int64, the first step with a loss that is not finite, or kNoBadStep
  int64_t images = 0;

  static constexpr int64_t kNoBadStep = std::numeric_limits<int64_t>::max();
  static EpochSums zeros(torch::Device device);
  /// Adds the step `position`: the mean loss of its batch, activations [B, J] and labels [B].
  void add(const torch::Tensor& batch_loss, const torch::Tensor& activations,
           const torch::Tensor& labels, int64_t position);
  /// The loss and `weight` times the number of right answers, float32 [2]: processes add them up.
  static torch::Tensor totals(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                              const torch::Tensor& labels, double weight);
  /// Adds a step of `count` images from all processes, given the sum of their totals.
  void add_totals(const torch::Tensor& totals, int64_t count, const torch::Tensor& position);
  /// add() in place on the device, with `position` (int64 [1]) on the device too. The caller
  /// updates `images`.
  void add_on_device(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                     const torch::Tensor& labels, const torch::Tensor& position);
};

}  // namespace remcaps
