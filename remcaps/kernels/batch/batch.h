// The two ends of a step on a GPU: makes a batch from the bytes of a data set, and adds the step's
// results to the sums of an epoch or an evaluation. On a CPU plain tensor operations do this.
#pragma once

#include <cstdint>

#ifdef REMCAPS_CUDA
#include <cuda_runtime_api.h>

namespace remcaps::kernels::cuda {

/// A data set on the device, and which images to take. With an order: the images of one step of an
/// epoch, augmented by random numbers. Without: the images from `first` on, not augmented.
struct BatchInput {
  static constexpr int kMostChannels = 4;
  const uint8_t* images = nullptr;   ///< [N, C, H, W]
  const int64_t* labels = nullptr;   ///< [N]
  const int64_t* order = nullptr;    ///< [N], or null
  int64_t first = 0;                 ///< used if there is no order
  const int64_t* step = nullptr;     ///< [1]: the batch begins at order[step * batch]
  const float* row_draws = nullptr;  ///< [N], uniform in 0..1, like the next two
  const float* column_draws = nullptr;
  const float* flip_draws = nullptr;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t shift = 0;  ///< moves images by up to so many pixels, filling with zeros
  bool flip = false;  ///< flips half of the images
  float mean[kMostChannels] = {}, deviation[kMostChannels] = {};
};

/// indices [B], labels [B], images [B, C, H, W]: shifted, flipped, normalised.
void make_batch(const BatchInput& input, int64_t* indices, int64_t* labels, float* images,
                cudaStream_t stream);

/// loss_sum += batch * loss; correct += right answers of activations [B, J];
/// bad_step = min(bad_step, step) if the loss is not finite.
void add_to_sums(int64_t batch, int64_t classes, const float* loss, const float* activations,
                 const int64_t* labels, const int64_t* step, double* loss_sum, int64_t* correct,
                 int64_t* bad_step, cudaStream_t stream);

/// totals [2] = loss, right answers of activations [B, J].
void make_totals(int64_t batch, int64_t classes, const float* loss, const float* activations,
                 const int64_t* labels, float* totals, cudaStream_t stream);

/// add_to_sums() of the totals [2] of `batch` images.
void add_totals(const float* totals, int64_t batch, const int64_t* step, double* loss_sum,
                int64_t* correct, int64_t* bad_step, cudaStream_t stream);

/// batch_loss = loss; confusion [J, J] counts the answers of activations [B, J]. Its rows are the
/// labels.
void add_to_evaluation(int64_t batch, int64_t classes, const float* loss, const float* activations,
                       const int64_t* labels, float* batch_loss, int64_t* confusion,
                       cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
