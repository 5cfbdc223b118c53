// From bytes to network input: batched tensor work on the device that holds the bytes.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "remcaps/data/dataset.h"

namespace remcaps {

/// The random numbers one image's augmentation takes, each with its own place in the random stream.
enum class Draw : uint32_t {
  kCropRow,
  kCropColumn,
  kShiftRow,
  kShiftColumn,
  kFlip,
  kRotation,
  kBrightness,
  kBrightnessAdd,
  kContrast,
  kOrder,
  kCount
};

/// Uniform numbers in [0, 1), float32 [Draw::kCount, N] on the device of `samples` (int64 [N]),
/// keyed by (seed, epoch, sample) alone. Rows the options do not use are zero.
torch::Tensor augment_draws(const AugmentOptions& options, uint64_t seed, uint64_t epoch,
                            const torch::Tensor& samples);

/// Error if options do not fit images of [C, H, W] (a crop larger than the image, a mean of
/// another number of channels).
void check_augment(const AugmentOptions& options, const std::vector<int64_t>& image);

/// Whether evaluation only normalises an image's channels.
bool only_normalizes(const AugmentOptions& options);

/// Whether training only shifts, flips and normalises images.
bool only_moves_pixels(const AugmentOptions& options);

/// What training changes at random, for people: "shift 2, flip". Empty: nothing.
std::string training_changes(const AugmentOptions& options);

/// [C, H, W] of an image of `image` = [C, H, W] after augmentation.
std::vector<int64_t> augmented_shape(const AugmentOptions& options,
                                     const std::vector<int64_t>& image);

/// Pads and resizes: the part that never changes for an image. Bytes to bytes.
torch::Tensor pad_and_resize(const torch::Tensor& bytes, const AugmentOptions& options);

/// The part that follows, in evaluation: centre crop and normalisation. uint8 [B, C, H, W] to
/// float32.
torch::Tensor finish_for_evaluation(const torch::Tensor& bytes, const AugmentOptions& options);

/// The same in training, with `draws` [Draw::kCount, B] from augment_draws.
torch::Tensor finish_for_training(const torch::Tensor& bytes, const AugmentOptions& options,
                                  const torch::Tensor& draws);

}  // namespace remcaps
