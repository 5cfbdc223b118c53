// What the steps of an epoch add up on the device.
#pragma once

#include <torch/types.h>

#include <limits>

namespace remcaps {

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

}  // namespace remcaps
