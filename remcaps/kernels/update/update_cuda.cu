#include <algorithm>

#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/update/update.h"

namespace remcaps::kernels::cuda {
namespace {

// Tensors per launch: kernel arguments are limited to 4 KiB.
constexpr int kTensors = 48;
constexpr int kThreads = 256;
constexpr int64_t kPiece = kThreads * 16;  // floats of each array per block

struct Batch {
  UpdateArrays arrays[kTensors];
  int first_block[kTensors];  // of each tensor
  int count;
};

__global__ void __launch_bounds__(kThreads)
    update_batch(const __grid_constant__ Batch batch, AdamConstants adam, const StepNumbers* step) {
  int tensor = 0;
  while (tensor + 1 < batch.count && batch.first_block[tensor + 1] <= int(blockIdx.x)) ++tensor;
  const UpdateArrays& arrays = batch.arrays[tensor];
  StepNumbers numbers = *step;
  if (!arrays.shrink) numbers.lambda = 0;
  const int64_t begin = (blockIdx.x - batch.first_block[tensor]) * kPiece;
  const int64_t end = min(arrays.count, begin + kPiece);
#pragma unroll 4
  for (int64_t x = begin + threadIdx.x; x < end; x += kThreads) {
    float p = arrays.parameter[x], m = arrays.first[x], v = arrays.second[x];
    update_parameter(adam, numbers, arrays.gradient[x], p, m, v);
    if (arrays.dead != nullptr && arrays.dead[x] != 0) p = 0;
    arrays.parameter[x] = p;
    arrays.first[x] = m;
    arrays.second[x] = v;
  }
}

}  // namespace

void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers* step, cudaStream_t stream) {
  for (size_t begin = 0; begin < arrays.size(); begin += kTensors) {
    Batch batch;
    batch.count = static_cast<int>(std::min<size_t>(kTensors, arrays.size() - begin));
    int blocks = 0;
    for (int i = 0; i < batch.count; ++i) {
      batch.arrays[i] = arrays[begin + i];
      batch.first_block[i] = blocks;
      blocks += blocks_for(batch.arrays[i].count, kPiece);
    }
    if (blocks == 0) continue;
    update_batch<<<blocks, kThreads, 0, stream>>>(batch, adam, step);
    check_launch("update_batch");
  }
}

}  // namespace remcaps::kernels::cuda
