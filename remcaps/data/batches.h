// Batches on the device: gather, augment, normalise, all as batched tensor work.
#pragma once

#include <torch/types.h>

#include "remcaps/data/dataset.h"

namespace remcaps {

struct Batch {
  torch::Tensor images;   ///< float32 [B, C, H, W], augmented and normalised, on the device
  torch::Tensor labels;   ///< int64 [B], on the device
  torch::Tensor indices;  ///< int64 [B], place of each image in its data set, on the device
  // Where the batch is a process's share of a larger one (BatchSource::take_share()):
  int64_t whole = 0;  ///< images of the whole batch
  /// The weight of its mean: the sum over the processes is then the mean of the whole batch.
  double weight = 1;
};

/// A data set as bytes: on the device if it fits there, else in host memory, from which batches are
/// streamed. A resize is done once, in the constructor, if it shrinks the images or if the larger
/// images fit on a GPU. Otherwise it is done for every batch, so that the larger images are never
/// stored. Both give the same bytes.
class BatchSource {
 public:
  /// `max_device_bytes` is how much of a GPU's memory the images may take; -1: half of what is
  /// free.
  BatchSource(const Dataset& dataset, AugmentOptions augment, torch::Device device,
              int64_t max_device_bytes = -1);

  int64_t size() const { return size_; }
  int64_t batches(int64_t batch_size) const { return (size_ + batch_size - 1) / batch_size; }
  /// Shape of an image after augmentation: [C, H, W].
  std::vector<int64_t> image_shape() const { return image_shape_; }
  torch::Device device() const { return device_; }
  bool resident() const { return resident_; }
  /// Whether a batch is made without the host, as a recorded graph has to: the images are resident
  /// and are not enlarged batch by batch.
  bool stays_on_device() const { return resident_ && batch_augment_.resize == 0; }

  /// Batch `step` of epoch `epoch` in training order: shuffled and augmented, every random number
  /// keyed by (seed, epoch, sample). The last batch may be smaller.
  Batch training_batch(int64_t step, int64_t batch_size, uint64_t seed, uint64_t epoch) const;

  /// The same for a step that a number on the device says (int64 [1]); full batches of the epoch
  /// that prepare_epoch() was last called for. Nothing in it depends on the host if
  /// stays_on_device().
  Batch training_batch_at(const torch::Tensor& step, int64_t batch_size) const;

  /// Makes the order and the random numbers of an epoch, unless they are the ones at hand.
  void prepare_epoch(uint64_t seed, uint64_t epoch) const;

  /// From now on training batches are the share of one of `size` processes: the same samples,
  /// divided in their order. A last batch with fewer images than processes is given to each of them
  /// as a whole. `batch` is the size of the whole batches, at least `size`.
  void take_share(int64_t rank, int64_t size, int64_t batch);

  /// Images [first, first + count) in their own order, without augmentation.
  Batch evaluation_batch(int64_t first, int64_t count) const;

 private:
  // Images `indices` (int64 [B], on the images' device) as bytes on the device.
  torch::Tensor gather(const torch::Tensor& indices) const;
  // Images `chosen` (int64 [B], on the images' device) of the epoch at hand, augmented.
  Batch augmented(const torch::Tensor& chosen) const;
  // This process's part of a batch of `count` images: [first, end).
  struct Part {
    int64_t first, end;
    double weight;
  };
  Part part_of(int64_t count) const;
  torch::Tensor order_of_parts(const torch::Tensor& order) const;

  Dataset dataset_;
  AugmentOptions augment_;        // as asked for
  AugmentOptions batch_augment_;  // what is left to do for a batch
  torch::Device device_;
  int64_t size_ = 0;
  bool resident_ = true;
  std::vector<int64_t> image_shape_;

  struct Epoch {
    bool made = false;
    uint64_t seed = 0, number = 0;
    torch::Tensor order;  // int64 [N], on the images' device
    torch::Tensor parts;  // the same for this process's parts of the full batches
    torch::Tensor draws;  // float32 [draws, N] on the device
  };
  mutable Epoch epoch_;
  int64_t rank_ = 0, processes_ = 1, shared_batch_ = 0;  // take_share()
};

/// One batch through the evaluation path (resize, crop, normalise) from bytes [B, C, H, W].
torch::Tensor prepare_images(const torch::Tensor& bytes, const AugmentOptions& augment);

}  // namespace remcaps
