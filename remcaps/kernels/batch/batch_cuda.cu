#include "remcaps/kernels/batch/batch.h"
#include "remcaps/kernels/cuda/launch.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kBatchThreads = 256;

__device__ inline int64_t drawn(float uniform, int64_t count) {
  return static_cast<int64_t>(floorf(uniform * static_cast<float>(count)));
}

// One block per image.
__global__ void batch_kernel(BatchInput input, int64_t* __restrict__ indices,
                             int64_t* __restrict__ labels, float* __restrict__ images) {
  const int64_t b = blockIdx.x;
  const int64_t chosen =
      input.order == nullptr ? input.first + b : input.order[*input.step * input.batch + b];
  if (threadIdx.x == 0) {
    indices[b] = chosen;
    labels[b] = input.labels[chosen];
  }
  int64_t down = 0, right = 0;
  if (input.shift > 0) {
    down = drawn(input.row_draws[chosen], 2 * input.shift + 1) - input.shift;
    right = drawn(input.column_draws[chosen], 2 * input.shift + 1) - input.shift;
  }
  const bool flipped = input.flip && input.flip_draws[chosen] >= 0.5F;
  const auto width = static_cast<int>(input.width), height = static_cast<int>(input.height);
  const int plane = height * width, size = static_cast<int>(input.channels) * plane;
  const uint8_t* from = input.images + chosen * size;
  float* to = images + b * size;
  for (int at = threadIdx.x; at < size; at += kBatchThreads) {
    const int channel = at / plane, place = at % plane, x = place % width;
    const int64_t row = place / width + down, column = (flipped ? width - 1 - x : x) + right;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    const float pixel = inside ? from[channel * plane + row * width + column] : 0;
    // Rounds after every operation, as torch does. A fused multiply-add would give other numbers.
    const float unit = __fmul_rn(pixel, 1.0F / 255.0F);
    to[at] = __fdiv_rn(__fsub_rn(unit, input.mean[channel]), input.deviation[channel]);
  }
}

// As torch's argmax: the first of the largest. NaN counts as larger than any number.
__device__ inline int64_t answer_of(const float* activations, int64_t classes) {
  int64_t best = 0;
  for (int64_t j = 1; j < classes; ++j)
    if (activations[j] > activations[best] || (isnan(activations[j]) && !isnan(activations[best])))
      best = j;
  return best;
}

// One block: a batch has only a few thousand activations, and the order of the sum is fixed.
// The number of right answers, for thread 0 of a block.
__device__ int count_right(int64_t batch, int64_t classes, const float* __restrict__ activations,
                           const int64_t* __restrict__ labels) {
  __shared__ int right;
  if (threadIdx.x == 0) right = 0;
  __syncthreads();
  for (int64_t b = threadIdx.x; b < batch; b += kBatchThreads) {
    if (answer_of(activations + b * classes, classes) == labels[b]) atomicAdd(&right, 1);
  }
  __syncthreads();
  return right;
}

__device__ void add_batch(float loss, int64_t right, int64_t batch, const int64_t* step,
                          double* loss_sum, int64_t* correct, int64_t* bad_step) {
  *loss_sum += static_cast<double>(loss) * static_cast<double>(batch);
  *correct += right;
  if (!isfinite(loss) && *step < *bad_step) *bad_step = *step;
}

__global__ void sums_kernel(int64_t batch, int64_t classes, const float* loss,
                            const float* __restrict__ activations,
                            const int64_t* __restrict__ labels, const int64_t* step,
                            double* loss_sum, int64_t* correct, int64_t* bad_step) {
  const int right = count_right(batch, classes, activations, labels);
  if (threadIdx.x == 0) add_batch(*loss, right, batch, step, loss_sum, correct, bad_step);
}

__global__ void totals_kernel(int64_t batch, int64_t classes, const float* loss,
                              const float* __restrict__ activations,
                              const int64_t* __restrict__ labels, float* totals) {
  const int right = count_right(batch, classes, activations, labels);
  if (threadIdx.x > 0) return;
  totals[0] = *loss;
  totals[1] = static_cast<float>(right);
}

__global__ void add_totals_kernel(const float* totals, int64_t batch, const int64_t* step,
                                  double* loss_sum, int64_t* correct, int64_t* bad_step) {
  add_batch(totals[0], llrintf(totals[1]), batch, step, loss_sum, correct, bad_step);
}

// One thread per image. The sums are integers and do not depend on the order.
__global__ void evaluation_kernel(int64_t batch, int64_t classes, const float* loss,
                                  const float* __restrict__ activations,
                                  const int64_t* __restrict__ labels, float* batch_loss,
                                  unsigned long long* confusion) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kBatchThreads + threadIdx.x;
  if (b == 0) *batch_loss = *loss;
  if (b >= batch) return;
  const int64_t label = labels[b];
  if (label < 0 || label >= classes) __trap();  // as torch's own index check does
  atomicAdd(&confusion[label * classes + answer_of(activations + b * classes, classes)], 1ULL);
}

}  // namespace

void make_batch(const BatchInput& input, int64_t* indices, int64_t* labels, float* images,
                cudaStream_t stream) {
  batch_kernel<<<static_cast<unsigned>(input.batch), kBatchThreads, 0, stream>>>(input, indices,
                                                                                 labels, images);
  check_launch("make_batch");
}

void add_to_sums(int64_t batch, int64_t classes, const float* loss, const float* activations,
                 const int64_t* labels, const int64_t* step, double* loss_sum, int64_t* correct,
                 int64_t* bad_step, cudaStream_t stream) {
  sums_kernel<<<1, kBatchThreads, 0, stream>>>(batch, classes, loss, activations, labels, step,
                                               loss_sum, correct, bad_step);
  check_launch("add_to_sums");
}

void make_totals(int64_t batch, int64_t classes, const float* loss, const float* activations,
                 const int64_t* labels, float* totals, cudaStream_t stream) {
  totals_kernel<<<1, kBatchThreads, 0, stream>>>(batch, classes, loss, activations, labels, totals);
  check_launch("make_totals");
}

void add_totals(const float* totals, int64_t batch, const int64_t* step, double* loss_sum,
                int64_t* correct, int64_t* bad_step, cudaStream_t stream) {
  add_totals_kernel<<<1, 1, 0, stream>>>(totals, batch, step, loss_sum, correct, bad_step);
  check_launch("add_totals");
}

void add_to_evaluation(int64_t batch, int64_t classes, const float* loss, const float* activations,
                       const int64_t* labels, float* batch_loss, int64_t* confusion,
                       cudaStream_t stream) {
  evaluation_kernel<<<blocks_for(batch, kBatchThreads), kBatchThreads, 0, stream>>>(
      batch, classes, loss, activations, labels, batch_loss,
      reinterpret_cast<unsigned long long*>(confusion));
  check_launch("add_to_evaluation");
}

}  // namespace remcaps::kernels::cuda
