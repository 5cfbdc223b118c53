// The products of dynamic_routing_kernels.cuh for pose sizes that have no kernel of their own: one
// thread per result, plain loops.
#pragma once

#include "remcaps/kernels/routing/dynamic_routing_device.h"

namespace remcaps::kernels::cuda {

// One thread per (i, j, image).
__global__ void vote_products_any(Dims dims, const float* __restrict__ u,
                                  const float* __restrict__ weight, const float* __restrict__ x,
                                  float* __restrict__ products) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t pairs = int64_t(dims.children) * dims.parents;
  if (thread >= pairs * dims.padded) return;
  const int64_t image = thread % dims.padded, ij = thread / dims.padded;
  const int64_t i = ij / dims.parents, j = ij % dims.parents;
  const float* w = weight + ij * dims.parent_dim * dims.child_dim;
  float product = 0;
  for (int d = 0; d < dims.parent_dim; ++d) {
    float vote = 0;
    for (int k = 0; k < dims.child_dim; ++k)
      vote =
          fmaf(w[d * dims.child_dim + k], u[(i * dims.child_dim + k) * dims.padded + image], vote);
    product = fmaf(vote, x[(j * dims.parent_dim + d) * dims.padded + image], product);
  }
  products[thread] = product;
}

// One thread per (j, d, image); blockIdx.y is the chunk.
__global__ void weighted_votes_any(Dims dims, int chunk, const float* __restrict__ u,
                                   const float* __restrict__ weight,
                                   const float* __restrict__ factors, float* __restrict__ partial) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t rows = int64_t(dims.parents) * dims.parent_dim;
  if (thread >= rows * dims.padded) return;
  const int64_t image = thread % dims.padded, row = thread / dims.padded;
  const int64_t j = row / dims.parent_dim;
  const int begin = blockIdx.y * chunk, end = min(dims.children, begin + chunk);
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    const float* w = weight + (i * rows + row) * dims.child_dim;
    float vote = 0;
    for (int k = 0; k < dims.child_dim; ++k)
      vote = fmaf(w[k], u[(i * dims.child_dim + k) * dims.padded + image], vote);
    const float factor =
        factors == nullptr ? 1.0F : factors[(i * dims.parents + j) * dims.padded + image];
    sum = fmaf(factor, vote, sum);
  }
  partial[blockIdx.y * rows * dims.padded + thread] = sum;
}

// One thread per (i, k, image).
__global__ void child_gradient_any(Dims dims, const float* __restrict__ weight,
                                   const float* __restrict__ factors, float uniform,
                                   const float* __restrict__ x, bool accumulate,
                                   float* __restrict__ grad_u) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= int64_t(dims.children) * dims.child_dim * dims.padded) return;
  const int64_t image = thread % dims.padded, ik = thread / dims.padded;
  const int64_t i = ik / dims.child_dim, k = ik % dims.child_dim;
  float sum = 0;
  for (int64_t j = 0; j < dims.parents; ++j) {
    const int64_t ij = i * dims.parents + j;
    float back = 0;
    for (int d = 0; d < dims.parent_dim; ++d)
      back = fmaf(weight[(ij * dims.parent_dim + d) * dims.child_dim + k],
                  x[(j * dims.parent_dim + d) * dims.padded + image], back);
    sum = fmaf(factors == nullptr ? uniform : factors[ij * dims.padded + image], back, sum);
  }
  grad_u[thread] = accumulate ? grad_u[thread] + sum : sum;
}

// One thread per weight.
__global__ void weight_gradient_any(Dims dims, const float* __restrict__ u,
                                    const float* __restrict__ factors, float uniform,
                                    const float* __restrict__ x, bool accumulate,
                                    float* __restrict__ grad_weight) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t block = int64_t(dims.parent_dim) * dims.child_dim;
  const int64_t ij = thread / block;
  if (ij >= int64_t(dims.children) * dims.parents) return;
  const int64_t i = ij / dims.parents, j = ij % dims.parents;
  const int64_t d = thread % block / dims.child_dim, k = thread % dims.child_dim;
  const float* pose = u + (i * dims.child_dim + k) * dims.padded;
  const float* value = x + (j * dims.parent_dim + d) * dims.padded;
  float sum = 0;
  for (int image = 0; image < dims.batch; ++image) {
    const float factor = factors == nullptr ? uniform : factors[ij * dims.padded + image];
    sum = fmaf(factor * value[image], pose[image], sum);
  }
  grad_weight[thread] = accumulate ? grad_weight[thread] + sum : sum;
}

}  // namespace remcaps::kernels::cuda
