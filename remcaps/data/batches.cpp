#include "remcaps/data/batches.h"

#include "remcaps/base/error.h"
#include "remcaps/base/random.h"
#include "remcaps/data/augment.h"
#include "remcaps/ops/batch.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

constexpr double kDeviceShare = 0.5;  // of the free memory, for one data set
constexpr int64_t kChunk = 512;       // images resized at a time

// Whether so many bytes may lie on a GPU; `max_bytes` as the constructor has it.
bool fits_on(torch::Device device, int64_t bytes, int64_t max_bytes) {
  const int64_t free = cuda_free_bytes(device);  // 0: not known
  if (max_bytes < 0 && free > 0)
    max_bytes = static_cast<int64_t>(kDeviceShare * static_cast<double>(free));
  return max_bytes < 0 || bytes <= max_bytes;
}

// The images on the device, or undefined if they should stay in host memory.
torch::Tensor move_to(const torch::Tensor& images, torch::Device device, int64_t max_bytes) {
  if (!device.is_cuda() || images.is_cuda()) return images;
  if (!fits_on(device, static_cast<int64_t>(images.nbytes()), max_bytes)) return {};
  try {
    return images.to(device);
  } catch (const c10::Error&) {
    return {};  // out of memory after all
  }
}

}  // namespace

BatchSource::BatchSource(const Dataset& dataset, AugmentOptions augment, torch::Device device,
                         int64_t max_device_bytes)
    : dataset_(dataset),
      augment_(std::move(augment)),
      batch_augment_(augment_),
      device_(device),
      size_(dataset.size()) {
  check(size_ > 0, "a data set without images cannot be batched");
  const std::vector<int64_t> image = dataset.images.sizes().slice(1).vec();
  check_augment(augment_, image);
  image_shape_ = augmented_shape(augment_, image);

  const int64_t side = augment_.resize;
  const bool shrinks = side * side <= image[1] * image[2];
  if (side > 0 && (shrinks || (device.is_cuda() && fits_on(device, size_ * image[0] * side * side,
                                                           max_device_bytes)))) {
    const at::NoGradGuard no_grad;
    // The large images of a small data set go to the GPU at once: the host may have no room for
    // them.
    torch::Tensor resized = torch::empty(
        {size_, image[0], side, side}, torch::TensorOptions()
                                           .dtype(torch::kUInt8)
                                           .device(shrinks ? torch::Device(torch::kCPU) : device));
    for (int64_t first = 0; first < size_; first += kChunk) {
      const int64_t count = std::min(kChunk, size_ - first);
      resized.narrow(0, first, count)
          .copy_(pad_and_resize(dataset.images.narrow(0, first, count).to(device), augment_));
    }
    dataset_.images = resized;
    batch_augment_.pad = batch_augment_.resize = 0;
  }
  const torch::Tensor moved = move_to(dataset_.images, device, max_device_bytes);
  resident_ = moved.defined();
  if (resident_) dataset_.images = moved;
  dataset_.labels = dataset_.labels.to(device);
}

torch::Tensor BatchSource::gather(const torch::Tensor& indices) const {
  if (resident_) return dataset_.images.index_select(0, indices);
  // Through page-locked memory: the copy to the device then overlaps with what it is computing.
  std::vector<int64_t> shape = dataset_.images.sizes().vec();
  shape[0] = indices.size(0);
  torch::Tensor staged =
      torch::empty(shape, torch::TensorOptions().dtype(torch::kUInt8).pinned_memory(true));
  torch::index_select_out(staged, dataset_.images, 0, indices);
  return staged.to(device_, /*non_blocking=*/true);
}

void BatchSource::prepare_epoch(uint64_t seed, uint64_t epoch) const {
  if (epoch_.made && epoch_.seed == seed && epoch_.number == epoch) return;
  const torch::Tensor samples =
      torch::arange(size_, torch::TensorOptions().dtype(torch::kInt64).device(device_));
  epoch_.order = torch::tensor(random_permutation(size_, seed, epoch)).to(dataset_.images.device());
  epoch_.parts = order_of_parts(epoch_.order);
  epoch_.draws = augment_draws(augment_, seed, epoch, samples);
  epoch_.seed = seed;
  epoch_.number = epoch;
  epoch_.made = true;
}

void BatchSource::take_share(int64_t rank, int64_t size, int64_t batch) {
  check(rank >= 0 && rank < size && size <= batch, "a share {} of {} of batches of {}", rank, size,
        batch);
  rank_ = rank;
  processes_ = size;
  shared_batch_ = batch;
  epoch_.made = false;
}

BatchSource::Part BatchSource::part_of(int64_t count) const {
  if (count < processes_) return {0, count, 1 / static_cast<double>(processes_)};
  const Part part = {count * rank_ / processes_, count * (rank_ + 1) / processes_, 1};
  return {part.first, part.end,
          static_cast<double>(part.end - part.first) / static_cast<double>(count)};
}

torch::Tensor BatchSource::order_of_parts(const torch::Tensor& order) const {
  if (processes_ == 1) return order;
  const int64_t full = size_ / shared_batch_;
  const Part part = part_of(shared_batch_);
  return order.narrow(0, 0, full * shared_batch_)
      .view({full, shared_batch_})
      .slice(1, part.first, part.end)
      .flatten();
}

Batch BatchSource::training_batch(int64_t step, int64_t batch_size, uint64_t seed,
                                  uint64_t epoch) const {
  const int64_t first = step * batch_size;
  check(batch_size > 0 && step >= 0 && first < size_,
        "batch {} of {} images: the data set has only {}", step, batch_size, size_);
  const at::NoGradGuard no_grad;
  prepare_epoch(seed, epoch);
  const int64_t count = std::min(batch_size, size_ - first);
  const Part part = part_of(count);
  Batch batch = augmented(epoch_.order.narrow(0, first + part.first, part.end - part.first));
  batch.whole = count;
  batch.weight = part.weight;
  return batch;
}

Batch BatchSource::training_batch_at(const torch::Tensor& step, int64_t batch_size) const {
  check(epoch_.made, "a batch of an epoch that was not prepared");
  const at::NoGradGuard no_grad;
  const Part part = part_of(batch_size);
  const int64_t count = part.end - part.first;
  if (resident_ && only_moves_pixels(batch_augment_) && has_fused_batch(dataset_.images)) {
    const auto drawn = [this](Draw which) {
      return epoch_.draws.select(0, static_cast<int64_t>(which));
    };
    FusedBatch made = fused_batch(
        dataset_.images, dataset_.labels,
        {epoch_.parts, drawn(Draw::kShiftRow), drawn(Draw::kShiftColumn), drawn(Draw::kFlip)}, step,
        count,
        {batch_augment_.shift, batch_augment_.flip, batch_augment_.mean, batch_augment_.std});
    return {.images = made.images,
            .labels = made.labels,
            .indices = made.indices,
            .whole = batch_size,
            .weight = part.weight};
  }
  const torch::Tensor places = step * count + torch::arange(count, step.options());
  Batch batch = augmented(epoch_.parts.index_select(0, places));
  batch.whole = batch_size;
  batch.weight = part.weight;
  return batch;
}

Batch BatchSource::augmented(const torch::Tensor& chosen) const {
  Batch batch;
  batch.indices = chosen.to(device_);
  batch.labels = dataset_.labels.index_select(0, batch.indices);
  batch.images = finish_for_training(pad_and_resize(gather(chosen), batch_augment_), batch_augment_,
                                     epoch_.draws.index_select(1, batch.indices));
  return batch;
}

Batch BatchSource::evaluation_batch(int64_t first, int64_t count) const {
  check(first >= 0 && count > 0 && first < size_, "images {} to {}: the data set has only {}",
        first, first + count, size_);
  const at::NoGradGuard no_grad;
  count = std::min(count, size_ - first);
  if (resident_ && only_normalizes(batch_augment_) && has_fused_batch(dataset_.images)) {
    FusedBatch made =
        fused_evaluation_batch(dataset_.images, dataset_.labels, first, count,
                               {.mean = batch_augment_.mean, .deviation = batch_augment_.std});
    return {.images = made.images, .labels = made.labels, .indices = made.indices};
  }
  Batch batch;
  batch.indices = torch::arange(first, first + count,
                                torch::TensorOptions().dtype(torch::kInt64).device(device_));
  batch.labels = dataset_.labels.narrow(0, first, count);
  torch::Tensor bytes = dataset_.images.narrow(0, first, count);
  if (!resident_) bytes = bytes.pin_memory().to(device_, /*non_blocking=*/true);
  batch.images = finish_for_evaluation(pad_and_resize(bytes, batch_augment_), batch_augment_);
  return batch;
}

torch::Tensor prepare_images(const torch::Tensor& bytes, const AugmentOptions& augment) {
  check(bytes.dim() == 4 && bytes.scalar_type() == torch::kUInt8,
        "images of [{}] and type {}; expected bytes of [B, C, H, W]",
        fmt::join(bytes.sizes(), ", "), torch::toString(bytes.scalar_type()));
  check_augment(augment, bytes.sizes().slice(1).vec());
  return finish_for_evaluation(pad_and_resize(bytes, augment), augment);
}

}  // namespace remcaps
