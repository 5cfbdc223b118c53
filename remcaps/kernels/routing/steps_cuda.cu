#include "remcaps/kernels/routing/steps.h"

#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/formulas.h"
#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kTransposeRows = 8;

// [B, X] -> [X, P]. A block of 32 x kTransposeRows threads transposes a tile of 32 x 32.
__global__ void image_last(int batch, int padded, int64_t size, const float* __restrict__ from,
                           float* __restrict__ to) {
  __shared__ float tile[kWarp][kWarp + 1];
  const int64_t x0 = int64_t(blockIdx.x) * kWarp;
  const int image0 = blockIdx.y * kWarp;
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int image = image0 + row;
    const int64_t x = x0 + threadIdx.x;
    tile[row][threadIdx.x] = image < batch && x < size ? from[image * size + x] : 0.0F;
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int64_t x = x0 + row;
    const int image = image0 + threadIdx.x;
    if (image < padded && x < size) to[x * padded + image] = tile[threadIdx.x][row];
  }
}

// [X, P] -> [B, X]
__global__ void image_first(int batch, int padded, int64_t size, const float* __restrict__ from,
                            float* __restrict__ to) {
  __shared__ float tile[kWarp][kWarp + 1];
  const int64_t x0 = int64_t(blockIdx.x) * kWarp;
  const int image0 = blockIdx.y * kWarp;
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int64_t x = x0 + row;
    const int image = image0 + threadIdx.x;
    tile[row][threadIdx.x] = image < padded && x < size ? from[x * padded + image] : 0.0F;
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kWarp; row += kTransposeRows) {
    const int image = image0 + row;
    const int64_t x = x0 + threadIdx.x;
    if (image < batch && x < size) to[image * size + x] = tile[threadIdx.x][row];
  }
}

__device__ inline float quantized(float coupling, const CouplingLevels& levels) {
  // The smallest level whose upper edge is not below the coupling.
  int low = 0, high = static_cast<int>(levels.count) - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (coupling > levels.edges[middle + 1])
      low = middle + 1;
    else
      high = middle;
  }
  return levels.centres[low];
}

// One thread per (child, image). The exponentials are computed twice, which is cheaper than storing
// them.
__global__ void softmax_over_parents(Dims dims, const float* __restrict__ scales,
                                     CouplingLevels levels, const float* logits, float* couplings) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.padded) return;
  const int64_t image = thread % dims.padded, i = thread / dims.padded;
  const float logit_scale = scales == nullptr ? 1.0F : scales[image];
  const int64_t first = i * dims.parents * dims.padded + image;
  const auto logit = [&](int j) { return logit_scale * logits[first + int64_t(j) * dims.padded]; };
  float highest = logit(0);
#pragma unroll 8
  for (int j = 1; j < dims.parents; ++j) highest = fmaxf(highest, logit(j));
  float total = 0;
#pragma unroll 8
  for (int j = 0; j < dims.parents; ++j) total += expf(logit(j) - highest);
  const float scale = 1.0F / total;
#pragma unroll 4
  for (int j = 0; j < dims.parents; ++j) {
    float c = expf(logit(j) - highest) * scale;
    if (levels.count > 0) c = quantized(c, levels);
    couplings[first + int64_t(j) * dims.padded] = c;
  }
}

// One thread per (child, image).
__global__ void softmax_gradient(Dims dims, const float* __restrict__ couplings, float* gradient) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.padded) return;
  const int64_t image = thread % dims.padded, i = thread / dims.padded;
  const int64_t first = i * dims.parents * dims.padded + image;
  float mean = 0;
  for (int j = 0; j < dims.parents; ++j) {
    const int64_t at = first + int64_t(j) * dims.padded;
    mean = fmaf(couplings[at], gradient[at], mean);
  }
  for (int j = 0; j < dims.parents; ++j) {
    const int64_t at = first + int64_t(j) * dims.padded;
    gradient[at] = couplings[at] * (gradient[at] - mean);
  }
}

// A block of the squash kernels: images x dimensions x parts. The parts share the chunks of a sum:
// a single thread would wait for one chunk after another.
constexpr int kSquashImages = 16, kSquashDims = 16, kSquashParts = 4;

// Sums of one parent and kSquashImages images. The whole block must make every call.
class SquashBlock {
 public:
  // The sum over chunks of partial[chunk * stride]. All threads of a (dimension, image) get it.
  __device__ float sum_of_chunks(const float* partial, int chunks, int64_t stride, bool valid) {
    __shared__ float parts[kSquashParts][kSquashDims][kSquashImages];
    float sum = 0;
    if (valid) {
#pragma unroll 8
      for (int chunk = threadIdx.z; chunk < chunks; chunk += kSquashParts)
        sum += partial[chunk * stride];
    }
    __syncthreads();
    parts[threadIdx.z][threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int part = 0; part < kSquashParts; ++part) sum += parts[part][threadIdx.y][threadIdx.x];
    return sum;
  }

  // Sums a value over an image's dimensions.
  __device__ float sum_over_dims(float value) {
    __shared__ float values[kSquashDims][kSquashImages];
    __syncthreads();
    if (threadIdx.z == 0) values[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int d = 0; d < kSquashDims; ++d) sum += values[d][threadIdx.x];
    return sum;
  }
};

// x: block of images, y: parent.
__global__ void __launch_bounds__(kSquashImages* kSquashDims* kSquashParts)
    squash_sums(Dims dims, SquashArguments a) {
  SquashBlock block;
  const int image = blockIdx.x * kSquashImages + threadIdx.x, j = blockIdx.y;
  const int64_t stride = int64_t(dims.parents) * dims.parent_dim * dims.padded;
  const bool writes = threadIdx.z == 0;
  float n2 = 0;
  for (int d0 = 0; d0 < dims.parent_dim; d0 += kSquashDims) {
    const int d = d0 + threadIdx.y, row = j * dims.parent_dim + d;
    const bool valid = image < dims.padded && d < dims.parent_dim;
    const int64_t at = int64_t(row) * dims.padded + image;
    float sum = a.scale * block.sum_of_chunks(a.partial + at, a.chunks, stride, valid);
    if (!valid) continue;
    if (a.bias != nullptr) sum += a.bias[row];
    if (writes) a.sums[at] = sum;
    n2 = fmaf(sum, sum, n2);
  }
  n2 = block.sum_over_dims(n2);
  const float factor = squash_factor(n2, a.epsilon);
  if (!writes || image >= dims.padded) return;
  for (int d = threadIdx.y; d < dims.parent_dim; d += kSquashDims) {
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    const float pose = factor * a.sums[at];
    a.poses[at] = pose;
    if (a.agreed != nullptr)
      a.agreed[at] = a.agreed_before == nullptr ? pose : a.agreed_before[at] + pose;
  }
}

// Threads as in squash_sums.
__global__ void __launch_bounds__(kSquashImages* kSquashDims* kSquashParts)
    squash_gradient(Dims dims, SquashGradientArguments a) {
  SquashBlock block;
  const int image = blockIdx.x * kSquashImages + threadIdx.x, j = blockIdx.y;
  const int64_t stride = int64_t(dims.parents) * dims.parent_dim * dims.padded;
  const bool writes = threadIdx.z == 0;
  float n2 = 0, along = 0;
  for (int d0 = 0; d0 < dims.parent_dim; d0 += kSquashDims) {
    const int d = d0 + threadIdx.y;
    const bool valid = image < dims.padded && d < dims.parent_dim;
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    float grad = 0;
    if (a.chunks > 0) grad = block.sum_of_chunks(a.partial + at, a.chunks, stride, valid);
    if (!valid || !writes) continue;
    if (!a.fresh) grad += a.carried[at];
    a.carried[at] = grad;
    const float sum = a.sums[at];
    n2 = fmaf(sum, sum, n2);
    along = fmaf(sum, grad, along);
  }
  n2 = block.sum_over_dims(n2);
  along = block.sum_over_dims(along);
  const float factor = squash_factor(n2, a.epsilon);
  const float twice_slope = squash_twice_slope(n2, a.epsilon);
  if (!writes || image >= dims.padded) return;
  for (int d = threadIdx.y; d < dims.parent_dim; d += kSquashDims) {
    const int64_t at = int64_t(j * dims.parent_dim + d) * dims.padded + image;
    a.grad_sums[at] = fmaf(factor, a.carried[at], twice_slope * along * a.sums[at]);
  }
}

// A warp per row x of grad_sums[iteration, x, image].
__global__ void sum_over_images(int iterations, int rows, int batch, int padded,
                                const float* __restrict__ grad_sums,
                                float* __restrict__ grad_bias) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  float sum = 0;
  for (int iteration = 0; iteration < iterations; ++iteration)
    for (int image = threadIdx.x; image < batch; image += kWarp)
      sum += grad_sums[(int64_t(iteration) * rows + row) * padded + image];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, offset);
  if (threadIdx.x == 0) grad_bias[row] = sum;
}

__global__ void fill_values(int64_t count, float value, float* to) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread < count) to[thread] = value;
}

dim3 transpose_grid(const Dims& dims, int64_t size) {
  return dim3(blocks_for(size, kWarp), blocks_for(dims.padded, kWarp));
}

dim3 squash_grid(const Dims& dims) {
  return dim3(blocks_for(dims.padded, kSquashImages), dims.parents);
}

dim3 squash_threads() {
  return dim3(kSquashImages, kSquashDims, kSquashParts);
}

}  // namespace

void RoutingSteps::to_image_last(int64_t size, const float* from, float* to) const {
  image_last<<<transpose_grid(dims_, size), dim3(kWarp, kTransposeRows), 0, stream_>>>(
      dims_.batch, dims_.padded, size, from, to);
  check_launch("image_last");
}

void RoutingSteps::to_image_first(int64_t size, const float* from, float* to) const {
  image_first<<<transpose_grid(dims_, size), dim3(kWarp, kTransposeRows), 0, stream_>>>(
      dims_.batch, dims_.padded, size, from, to);
  check_launch("image_first");
}

void RoutingSteps::softmax(const float* scales, const CouplingLevels& levels, const float* logits,
                           float* couplings) const {
  softmax_over_parents<<<blocks_for(int64_t(dims_.children) * dims_.padded, 128), 128, 0,
                         stream_>>>(dims_, scales, levels, logits, couplings);
  check_launch("softmax_over_parents");
}

void RoutingSteps::softmax_backward(const float* couplings, float* gradient) const {
  softmax_gradient<<<blocks_for(int64_t(dims_.children) * dims_.padded, 128), 128, 0, stream_>>>(
      dims_, couplings, gradient);
  check_launch("softmax_gradient");
}

void RoutingSteps::squash(const SquashArguments& arguments) const {
  squash_sums<<<squash_grid(dims_), squash_threads(), 0, stream_>>>(dims_, arguments);
  check_launch("squash_sums");
}

void RoutingSteps::squash_backward(const SquashGradientArguments& arguments) const {
  squash_gradient<<<squash_grid(dims_), squash_threads(), 0, stream_>>>(dims_, arguments);
  check_launch("squash_gradient");
}

void RoutingSteps::bias_gradient(int iterations, const float* grad_sums, float* grad_bias) const {
  const int rows = dims_.parents * dims_.parent_dim;
  constexpr int kWarps = 4;
  sum_over_images<<<blocks_for(rows, kWarps), dim3(kWarp, kWarps), 0, stream_>>>(
      iterations, rows, dims_.batch, dims_.padded, grad_sums, grad_bias);
  check_launch("sum_over_images");
}

void RoutingSteps::give_couplings(const float* from, float uniform, float* to) const {
  const int64_t pairs = int64_t(dims_.children) * dims_.parents, count = dims_.batch * pairs;
  if (from != nullptr) return to_image_first(pairs, from, to);
  fill_values<<<blocks_for(count, 256), 256, 0, stream_>>>(count, uniform, to);
  check_launch("fill_values");
}

}  // namespace remcaps::kernels::cuda
