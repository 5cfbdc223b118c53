#include <cuda_bf16.h>

#include "remcaps/kernels/cuda_launch.cuh"
#include "remcaps/kernels/pointwise_kernels.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline void put(float* to, float x) {
  *to = x;
}
__device__ inline void put(__nv_bfloat16* to, float x) {
  *to = __float2bfloat16(x);
}

__device__ inline int64_t capsule_offset(const CapsuleMap& shape, int64_t capsule) {
  // 32-bit divisions where they do: 64-bit ones would take longer than the squash.
  const auto places = static_cast<uint32_t>(shape.places), types = uint32_t(shape.types);
  const auto index = static_cast<uint32_t>(capsule);
  const int64_t place = index % places, type = index / places % types;
  const int64_t image = index / places / types;
  return image * shape.batch_stride + type * shape.type_stride + place * shape.place_stride;
}

template <typename T>
__device__ float squared_length(const CapsuleMap& shape, const T* s) {
  float n2 = 0;
  for (int64_t d = 0; d < shape.dim; ++d) {
    const float x = to_float(s[d * shape.dim_stride]);
    n2 = fmaf(x, x, n2);
  }
  return n2;
}

// One thread per capsule; the second reading of its few numbers comes out of the cache.
template <typename T>
__global__ void squash_kernel(CapsuleMap shape, const T* __restrict__ map, float epsilon,
                              float* __restrict__ capsules) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  const T* s = map + capsule_offset(shape, capsule);
  const float factor = squash_factor(squared_length(shape, s), epsilon);
  float* out = capsules + capsule * shape.dim;
  for (int64_t d = 0; d < shape.dim; ++d) out[d] = factor * to_float(s[d * shape.dim_stride]);
}

template <typename T>
__global__ void squash_gradient_kernel(CapsuleMap shape, const T* __restrict__ map,
                                       const float* __restrict__ grad_capsules, float epsilon,
                                       T* __restrict__ grad_map) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  const int64_t offset = capsule_offset(shape, capsule);
  const T* s = map + offset;
  const float* grad = grad_capsules + capsule * shape.dim;
  const float n2 = squared_length(shape, s);
  float along = 0;
  for (int64_t d = 0; d < shape.dim; ++d)
    along = fmaf(grad[d], to_float(s[d * shape.dim_stride]), along);
  const float factor = squash_factor(n2, epsilon);
  const float pull = squash_twice_slope(n2, epsilon) * along;
  for (int64_t d = 0; d < shape.dim; ++d)
    put(grad_map + offset + d * shape.dim_stride,
        fmaf(factor, grad[d], pull * to_float(s[d * shape.dim_stride])));
}

// One block: its sum has one order, and a batch has a few thousand terms only.
constexpr int kLossThreads = 1024;
__global__ void margin_kernel(int64_t batch, int64_t classes, const float* __restrict__ activations,
                              const int64_t* __restrict__ labels, Margins margins, float* loss,
                              float* __restrict__ gradient) {
  __shared__ float sums[kLossThreads];
  const float scale = 1.0F / static_cast<float>(batch);
  float total = 0;
  for (int64_t at = threadIdx.x; at < batch * classes; at += kLossThreads) {
    float derivative = 0;
    total +=
        margin_term(activations[at], labels[at / classes] == at % classes, margins, &derivative);
    gradient[at] = scale * derivative;
  }
  sums[threadIdx.x] = total;
  for (int half = kLossThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = scale * sums[0];
}

}  // namespace

void squash_map(const CapsuleMap& shape, MapType type, const void* map, float epsilon,
                float* capsules, cudaStream_t stream) {
  const int blocks = blocks_for(shape.capsules(), kThreads);
  if (type == MapType::kFloat32)
    squash_kernel<<<blocks, kThreads, 0, stream>>>(shape, static_cast<const float*>(map), epsilon,
                                                   capsules);
  else
    squash_kernel<<<blocks, kThreads, 0, stream>>>(shape, static_cast<const __nv_bfloat16*>(map),
                                                   epsilon, capsules);
  check_launch("squash_map");
}

void squash_map_gradient(const CapsuleMap& shape, MapType type, const void* map,
                         const float* grad_capsules, float epsilon, void* grad_map,
                         cudaStream_t stream) {
  const int blocks = blocks_for(shape.capsules(), kThreads);
  if (type == MapType::kFloat32)
    squash_gradient_kernel<<<blocks, kThreads, 0, stream>>>(shape, static_cast<const float*>(map),
                                                            grad_capsules, epsilon,
                                                            static_cast<float*>(grad_map));
  else
    squash_gradient_kernel<<<blocks, kThreads, 0, stream>>>(
        shape, static_cast<const __nv_bfloat16*>(map), grad_capsules, epsilon,
        static_cast<__nv_bfloat16*>(grad_map));
  check_launch("squash_map_gradient");
}

void margin_loss(int64_t batch, int64_t classes, const float* activations, const int64_t* labels,
                 const Margins& margins, float* loss, float* gradient, cudaStream_t stream) {
  margin_kernel<<<1, kLossThreads, 0, stream>>>(batch, classes, activations, labels, margins, loss,
                                                gradient);
  check_launch("margin_loss");
}

}  // namespace remcaps::kernels::cuda
