#include "remcaps/ops/batch.h"

#include "remcaps/base/error.h"
#include "remcaps/kernels/batch/batch.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {

using torch::Tensor;

#ifdef REMCAPS_CUDA

namespace {

void put_per_channel(const std::vector<double>& values, int64_t channels, float* out) {
  check(values.size() == 1 || static_cast<int64_t>(values.size()) == channels,
        "fused batch: {} values for {} channels", values.size(), channels);
  for (int64_t c = 0; c < channels; ++c)
    out[c] = static_cast<float>(values[values.size() == 1 ? 0 : static_cast<size_t>(c)]);
}

kernels::cuda::BatchInput batch_input(const Tensor& images, const Tensor& labels, int64_t batch,
                                      const PixelAugment& augment) {
  check(has_fused_batch(images) && labels.is_contiguous() && batch > 0,
        "fused batch: images [{}] of {}; expected dense bytes [N, C, H, W] on a GPU",
        fmt::join(images.sizes(), ", "), c10::toString(images.scalar_type()));
  kernels::cuda::BatchInput input;
  input.images = images.data_ptr<uint8_t>();
  input.labels = labels.data_ptr<int64_t>();
  input.batch = batch;
  input.channels = images.size(1);
  input.height = images.size(2);
  input.width = images.size(3);
  put_per_channel(augment.mean, input.channels, input.mean);
  put_per_channel(augment.deviation, input.channels, input.deviation);
  return input;
}

FusedBatch make_batch(const kernels::cuda::BatchInput& input, const Tensor& images) {
  const auto options = images.options();
  FusedBatch made{torch::empty({input.batch}, options.dtype(torch::kInt64)),
                  torch::empty({input.batch}, options.dtype(torch::kInt64)),
                  torch::empty({input.batch, input.channels, input.height, input.width},
                               options.dtype(torch::kFloat32))};
  const kernels::cuda::DeviceScope scope(images);
  kernels::cuda::make_batch(input, made.indices.data_ptr<int64_t>(),
                            made.labels.data_ptr<int64_t>(), made.images.data_ptr<float>(),
                            scope.stream());
  return made;
}

void check_sums(const Tensor& loss, const Tensor& activations, const Tensor& labels) {
  check(has_fused_sums(loss, activations) && labels.is_contiguous() &&
            labels.size(0) == activations.size(0),
        "fused sums: activations [{}] and labels [{}]; expected float32 [B, J] and [B] on a GPU",
        fmt::join(activations.sizes(), ", "), fmt::join(labels.sizes(), ", "));
}

}  // namespace

bool has_fused_batch(const Tensor& images) {
  return images.is_cuda() && images.scalar_type() == torch::kUInt8 && images.dim() == 4 &&
         images.is_contiguous() && images.size(1) <= kernels::cuda::BatchInput::kMostChannels;
}

FusedBatch fused_batch(const Tensor& images, const Tensor& labels, const EpochDraws& draws,
                       const Tensor& step, int64_t batch, const PixelAugment& augment) {
  check(draws.order.is_contiguous() && draws.row.is_contiguous() && draws.column.is_contiguous() &&
            draws.flip.is_contiguous() && step.numel() == 1,
        "fused batch: an epoch's order and numbers must be dense");
  kernels::cuda::BatchInput input = batch_input(images, labels, batch, augment);
  input.order = draws.order.data_ptr<int64_t>();
  input.step = step.data_ptr<int64_t>();
  input.row_draws = draws.row.data_ptr<float>();
  input.column_draws = draws.column.data_ptr<float>();
  input.flip_draws = draws.flip.data_ptr<float>();
  input.shift = augment.shift;
  input.flip = augment.flip;
  return make_batch(input, images);
}

FusedBatch fused_evaluation_batch(const Tensor& images, const Tensor& labels, int64_t first,
                                  int64_t count, const PixelAugment& augment) {
  check(first >= 0 && first + count <= labels.size(0) && labels.size(0) == images.size(0),
        "fused batch: images {} to {} of {}", first, first + count, images.size(0));
  kernels::cuda::BatchInput input = batch_input(images, labels, count, augment);
  input.first = first;
  return make_batch(input, images);
}

bool has_fused_sums(const Tensor& loss, const Tensor& activations) {
  return activations.is_cuda() && activations.scalar_type() == torch::kFloat32 &&
         activations.dim() == 2 && activations.is_contiguous() && loss.is_cuda() &&
         loss.scalar_type() == torch::kFloat32 && loss.numel() == 1;
}

void add_to_fused_sums(const Tensor& loss, const Tensor& activations, const Tensor& labels,
                       const Tensor& step, const Tensor& loss_sum, const Tensor& correct,
                       const Tensor& bad_step) {
  check_sums(loss, activations, labels);
  const kernels::cuda::DeviceScope scope(activations);
  kernels::cuda::add_to_sums(activations.size(0), activations.size(1), loss.data_ptr<float>(),
                             activations.data_ptr<float>(), labels.data_ptr<int64_t>(),
                             step.data_ptr<int64_t>(), loss_sum.data_ptr<double>(),
                             correct.data_ptr<int64_t>(), bad_step.data_ptr<int64_t>(),
                             scope.stream());
}

Tensor fused_totals(const Tensor& loss, const Tensor& activations, const Tensor& labels) {
  check_sums(loss, activations, labels);
  const Tensor totals = torch::empty({2}, loss.options());
  const kernels::cuda::DeviceScope scope(activations);
  kernels::cuda::make_totals(activations.size(0), activations.size(1), loss.data_ptr<float>(),
                             activations.data_ptr<float>(), labels.data_ptr<int64_t>(),
                             totals.data_ptr<float>(), scope.stream());
  return totals;
}

bool has_fused_totals(const Tensor& totals) {
  return totals.is_cuda() && totals.scalar_type() == torch::kFloat32 && totals.is_contiguous() &&
         totals.numel() == 2;
}

void add_fused_totals(const Tensor& totals, int64_t count, const Tensor& step,
                      const Tensor& loss_sum, const Tensor& correct, const Tensor& bad_step) {
  check(has_fused_totals(totals), "fused totals: [{}]; expected float32 [2] on a GPU",
        fmt::join(totals.sizes(), ", "));
  const kernels::cuda::DeviceScope scope(totals);
  kernels::cuda::add_totals(totals.data_ptr<float>(), count, step.data_ptr<int64_t>(),
                            loss_sum.data_ptr<double>(), correct.data_ptr<int64_t>(),
                            bad_step.data_ptr<int64_t>(), scope.stream());
}

void add_to_fused_evaluation(const Tensor& loss, const Tensor& activations, const Tensor& labels,
                             const Tensor& batch_loss, const Tensor& confusion) {
  check_sums(loss, activations, labels);
  const int64_t classes = activations.size(1);
  check(confusion.is_contiguous() && confusion.numel() == classes * classes &&
            batch_loss.numel() == 1,
        "fused sums: a confusion matrix of {} for {} classes", confusion.numel(), classes);
  const kernels::cuda::DeviceScope scope(activations);
  kernels::cuda::add_to_evaluation(activations.size(0), classes, loss.data_ptr<float>(),
                                   activations.data_ptr<float>(), labels.data_ptr<int64_t>(),
                                   batch_loss.data_ptr<float>(), confusion.data_ptr<int64_t>(),
                                   scope.stream());
}

#else

bool has_fused_batch(const Tensor&) {
  return false;
}

FusedBatch fused_batch(const Tensor&, const Tensor&, const EpochDraws&, const Tensor&, int64_t,
                       const PixelAugment&) {
  fail("fused batch: this build has no kernel for it");
}

FusedBatch fused_evaluation_batch(const Tensor&, const Tensor&, int64_t, int64_t,
                                  const PixelAugment&) {
  fail("fused batch: this build has no kernel for it");
}

bool has_fused_sums(const Tensor&, const Tensor&) {
  return false;
}

void add_to_fused_sums(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&, const Tensor&) {
  fail("fused sums: this build has no kernel for them");
}

Tensor fused_totals(const Tensor&, const Tensor&, const Tensor&) {
  fail("fused sums: this build has no kernel for them");
}

bool has_fused_totals(const Tensor&) {
  return false;
}

void add_fused_totals(const Tensor&, int64_t, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&) {
  fail("fused sums: this build has no kernel for them");
}

void add_to_fused_evaluation(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const Tensor&) {
  fail("fused sums: this build has no kernel for them");
}

#endif

}  // namespace remcaps
