// Reads and writes the numbers of a float32 or bfloat16 map as floats, one or eight at a time.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace remcaps::kernels::cuda {

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

// Eight consecutive numbers, aligned to 16 bytes.
struct alignas(16) Eight {
  float x[8];
};

__device__ inline Eight load8(const float* from) {
  Eight eight;
  reinterpret_cast<float4*>(eight.x)[0] = reinterpret_cast<const float4*>(from)[0];
  reinterpret_cast<float4*>(eight.x)[1] = reinterpret_cast<const float4*>(from)[1];
  return eight;
}
__device__ inline Eight load8(const __nv_bfloat16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
    eight.x[2 * i] = __uint_as_float(words[i] << 16);
    eight.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
  }
  return eight;
}
__device__ inline void store8(float* to, const Eight& eight) {
  reinterpret_cast<float4*>(to)[0] = reinterpret_cast<const float4*>(eight.x)[0];
  reinterpret_cast<float4*>(to)[1] = reinterpret_cast<const float4*>(eight.x)[1];
}
__device__ inline void store8(__nv_bfloat16* to, const Eight& eight) {
  __nv_bfloat162 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(eight.x[2 * i], eight.x[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
}

}  // namespace remcaps::kernels::cuda
