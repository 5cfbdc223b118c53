#include <cuda_bf16.h>

#include <type_traits>

#include "remcaps/kernels/cuda/launch.h"
#include "remcaps/kernels/cuda/map_numbers.h"
#include "remcaps/kernels/pointwise/pointwise.h"

namespace remcaps::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline int64_t capsule_offset(const CapsuleMap& shape, int64_t capsule) {
  // 32-bit divisions if they suffice: 64-bit ones would take longer than the squash.
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

// One thread per capsule. The second read of its few numbers comes from the cache.
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

__device__ inline float dot(const Eight& a, const Eight& b) {
  float sum = 0;
#pragma unroll
  for (int d = 0; d < 8; ++d) sum = fmaf(a.x[d], b.x[d], sum);
  return sum;
}

// The same for capsules of 8 in a channels-last map, with one or two loads and stores each.
template <typename T>
__global__ void squash8_kernel(CapsuleMap shape, const T* __restrict__ map, float epsilon,
                               float* __restrict__ capsules) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  Eight s = load8(map + capsule_offset(shape, capsule));
  const float factor = squash_factor(dot(s, s), epsilon);
#pragma unroll
  for (int d = 0; d < 8; ++d) s.x[d] *= factor;
  store8(capsules + capsule * 8, s);
}

template <typename T>
__global__ void squash8_gradient_kernel(CapsuleMap shape, const T* __restrict__ map,
                                        const float* __restrict__ grad_capsules, float epsilon,
                                        T* __restrict__ grad_map) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  const int64_t offset = capsule_offset(shape, capsule);
  const Eight s = load8(map + offset);
  Eight grad = load8(grad_capsules + capsule * 8);
  const float n2 = dot(s, s), along = dot(grad, s);
  const float factor = squash_factor(n2, epsilon);
  const float pull = squash_twice_slope(n2, epsilon) * along;
#pragma unroll
  for (int d = 0; d < 8; ++d) grad.x[d] = fmaf(factor, grad.x[d], pull * s.x[d]);
  store8(grad_map + offset, grad);
}

// Capsules of kDim numbers (a divisor of 8) that follow each other without gaps: eight numbers per
// thread, for a map of any shape.
template <typename T, int kDim>
__global__ void squash_flat_kernel(int64_t eights, const T* __restrict__ map, float epsilon,
                                   T* __restrict__ squashed) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (at >= eights * 8) return;
  Eight s = load8(map + at);
#pragma unroll
  for (int first = 0; first < 8; first += kDim) {
    float n2 = 0;
#pragma unroll
    for (int d = first; d < first + kDim; ++d) n2 = fmaf(s.x[d], s.x[d], n2);
    const float factor = squash_slopes(n2, epsilon).factor;
#pragma unroll
    for (int d = first; d < first + kDim; ++d) s.x[d] *= factor;
  }
  store8(squashed + at, s);
}

template <typename T, int kDim>
__global__ void squash_flat_gradient_kernel(int64_t eights, const T* __restrict__ map,
                                            const T* __restrict__ grad_squashed, float epsilon,
                                            T* __restrict__ grad_map) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (at >= eights * 8) return;
  const Eight s = load8(map + at);
  Eight grad = load8(grad_squashed + at);
#pragma unroll
  for (int first = 0; first < 8; first += kDim) {
    float n2 = 0, along = 0;
#pragma unroll
    for (int d = first; d < first + kDim; ++d) {
      n2 = fmaf(s.x[d], s.x[d], n2);
      along = fmaf(grad.x[d], s.x[d], along);
    }
    const SquashSlopes slopes = squash_slopes(n2, epsilon);
    const float pull = slopes.twice_slope * along;
#pragma unroll
    for (int d = first; d < first + kDim; ++d)
      grad.x[d] = fmaf(slopes.factor, grad.x[d], pull * s.x[d]);
  }
  store8(grad_map + at, grad);
}

// Any other layout: one thread per capsule.
template <typename T>
__global__ void squash_channels_kernel(CapsuleMap shape, const T* __restrict__ map, float epsilon,
                                       T* __restrict__ squashed) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  const int64_t offset = capsule_offset(shape, capsule);
  const float factor = squash_factor(squared_length(shape, map + offset), epsilon);
  for (int64_t d = 0; d < shape.dim; ++d) {
    const int64_t at = offset + d * shape.dim_stride;
    put(squashed + at, factor * to_float(map[at]));
  }
}

template <typename T>
__global__ void squash_channels_gradient_kernel(CapsuleMap shape, const T* __restrict__ map,
                                                const T* __restrict__ grad_squashed, float epsilon,
                                                T* __restrict__ grad_map) {
  const int64_t capsule = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (capsule >= shape.capsules()) return;
  const int64_t offset = capsule_offset(shape, capsule);
  float n2 = 0, along = 0;
  for (int64_t d = 0; d < shape.dim; ++d) {
    const int64_t at = offset + d * shape.dim_stride;
    const float s = to_float(map[at]);
    n2 = fmaf(s, s, n2);
    along = fmaf(to_float(grad_squashed[at]), s, along);
  }
  const SquashSlopes slopes = squash_slopes(n2, epsilon);
  const float pull = slopes.twice_slope * along;
  for (int64_t d = 0; d < shape.dim; ++d) {
    const int64_t at = offset + d * shape.dim_stride;
    put(grad_map + at, fmaf(slopes.factor, to_float(grad_squashed[at]), pull * to_float(map[at])));
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

bool lies_in_eights(const CapsuleMap& shape) {
  return shape.dim == 8 && shape.dim_stride == 1 && shape.batch_stride % 8 == 0 &&
         shape.type_stride % 8 == 0 && shape.place_stride % 8 == 0;
}

template <typename T>
void launch_squash(const CapsuleMap& shape, const T* map, float epsilon, float* capsules,
                   cudaStream_t stream) {
  const int blocks = blocks_for(shape.capsules(), kThreads);
  if (lies_in_eights(shape) && is_aligned(map) && is_aligned(capsules))
    squash8_kernel<<<blocks, kThreads, 0, stream>>>(shape, map, epsilon, capsules);
  else
    squash_kernel<<<blocks, kThreads, 0, stream>>>(shape, map, epsilon, capsules);
}

template <typename T>
void launch_squash_gradient(const CapsuleMap& shape, const T* map, const float* grad_capsules,
                            float epsilon, T* grad_map, cudaStream_t stream) {
  const int blocks = blocks_for(shape.capsules(), kThreads);
  if (lies_in_eights(shape) && is_aligned(map) && is_aligned(grad_capsules) && is_aligned(grad_map))
    squash8_gradient_kernel<<<blocks, kThreads, 0, stream>>>(shape, map, grad_capsules, epsilon,
                                                             grad_map);
  else
    squash_gradient_kernel<<<blocks, kThreads, 0, stream>>>(shape, map, grad_capsules, epsilon,
                                                            grad_map);
}

// Calls `flat` with the size of a capsule as a compile-time constant if the map can be cut into
// groups of eight numbers.
template <typename Flat, typename Any>
void with_flat_size(const CapsuleMap& shape, bool aligned, const Flat& flat, const Any& any) {
  const bool in_eights = aligned && shape.is_flat() && shape.capsules() * shape.dim % 8 == 0;
  if (in_eights && shape.dim == 1) return flat(std::integral_constant<int, 1>());
  if (in_eights && shape.dim == 4) return flat(std::integral_constant<int, 4>());
  if (in_eights && shape.dim == 8) return flat(std::integral_constant<int, 8>());
  any();
}

template <typename T>
void launch_squash_channels(const CapsuleMap& shape, const T* map, float epsilon, T* squashed,
                            cudaStream_t stream) {
  const int64_t eights = shape.capsules() * shape.dim / 8;
  with_flat_size(
      shape, is_aligned(map) && is_aligned(squashed),
      [&](auto dim) {
        squash_flat_kernel<T, decltype(dim)::value>
            <<<blocks_for(eights, kThreads), kThreads, 0, stream>>>(eights, map, epsilon, squashed);
      },
      [&] {
        squash_channels_kernel<<<blocks_for(shape.capsules(), kThreads), kThreads, 0, stream>>>(
            shape, map, epsilon, squashed);
      });
}

template <typename T>
void launch_squash_channels_gradient(const CapsuleMap& shape, const T* map, const T* grad_squashed,
                                     float epsilon, T* grad_map, cudaStream_t stream) {
  const int64_t eights = shape.capsules() * shape.dim / 8;
  with_flat_size(
      shape, is_aligned(map) && is_aligned(grad_squashed) && is_aligned(grad_map),
      [&](auto dim) {
        squash_flat_gradient_kernel<T, decltype(dim)::value>
            <<<blocks_for(eights, kThreads), kThreads, 0, stream>>>(eights, map, grad_squashed,
                                                                    epsilon, grad_map);
      },
      [&] {
        squash_channels_gradient_kernel<<<blocks_for(shape.capsules(), kThreads), kThreads, 0,
                                          stream>>>(shape, map, grad_squashed, epsilon, grad_map);
      });
}

// One block, so that the sum has a fixed order. A batch has only a few thousand terms.
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
  if (type == MapType::kFloat32)
    launch_squash(shape, static_cast<const float*>(map), epsilon, capsules, stream);
  else
    launch_squash(shape, static_cast<const __nv_bfloat16*>(map), epsilon, capsules, stream);
  check_launch("squash_map");
}

void squash_map_gradient(const CapsuleMap& shape, MapType type, const void* map,
                         const float* grad_capsules, float epsilon, void* grad_map,
                         cudaStream_t stream) {
  if (type == MapType::kFloat32)
    launch_squash_gradient(shape, static_cast<const float*>(map), grad_capsules, epsilon,
                           static_cast<float*>(grad_map), stream);
  else
    launch_squash_gradient(shape, static_cast<const __nv_bfloat16*>(map), grad_capsules, epsilon,
                           static_cast<__nv_bfloat16*>(grad_map), stream);
  check_launch("squash_map_gradient");
}

void squash_channels(const CapsuleMap& shape, MapType type, const void* map, float epsilon,
                     void* squashed, cudaStream_t stream) {
  if (type == MapType::kFloat32)
    launch_squash_channels(shape, static_cast<const float*>(map), epsilon,
                           static_cast<float*>(squashed), stream);
  else
    launch_squash_channels(shape, static_cast<const __nv_bfloat16*>(map), epsilon,
                           static_cast<__nv_bfloat16*>(squashed), stream);
  check_launch("squash_channels");
}

void squash_channels_gradient(const CapsuleMap& shape, MapType type, const void* map,
                              const void* grad_squashed, float epsilon, void* grad_map,
                              cudaStream_t stream) {
  if (type == MapType::kFloat32)
    launch_squash_channels_gradient(shape, static_cast<const float*>(map),
                                    static_cast<const float*>(grad_squashed), epsilon,
                                    static_cast<float*>(grad_map), stream);
  else
    launch_squash_channels_gradient(shape, static_cast<const __nv_bfloat16*>(map),
                                    static_cast<const __nv_bfloat16*>(grad_squashed), epsilon,
                                    static_cast<__nv_bfloat16*>(grad_map), stream);
  check_launch("squash_channels_gradient");
}

void margin_loss(int64_t batch, int64_t classes, const float* activations, const int64_t* labels,
                 const Margins& margins, float* loss, float* gradient, cudaStream_t stream) {
  margin_kernel<<<1, kLossThreads, 0, stream>>>(batch, classes, activations, labels, margins, loss,
                                                gradient);
  check_launch("margin_loss");
}

}  // namespace remcaps::kernels::cuda
