// Device code: the gradient of the matrices W_ij, for dynamic and scaled-distance routing.
#pragma once

#include <algorithm>

#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {

constexpr int kGradientWarps = 4;     // warps that share the images of a step
constexpr int kGradientImages = 128;  // per step
constexpr int kGradientPitch = kWarp + 1;

template <int kDin>
__device__ void load_pose(const float4* from, float (&u)[kDin]) {
#pragma unroll
  for (int k = 0; k < kDin / 4; ++k) {
    const float4 part = from[k];
    u[4 * k + 0] = part.x;
    u[4 * k + 1] = part.y;
    u[4 * k + 2] = part.z;
    u[4 * k + 3] = part.w;
  }
}

// sum += factor * values u^T; values(d) are the rows 4 d to 4 d + 3.
template <int kDin, int kRows, typename Values>
__device__ void add_outer_product(float factor, const float (&u)[kDin], const Values& values,
                                  float (&sum)[kRows][kDin]) {
  float scaled[kDin];
#pragma unroll
  for (int k = 0; k < kDin; ++k) scaled[k] = factor * u[k];
#pragma unroll
  for (int d = 0; d < kRows / 4; ++d) {
    const float4 value = values(d);
#pragma unroll
    for (int k = 0; k < kDin; ++k) {
      sum[4 * d + 0][k] = fmaf(value.x, scaled[k], sum[4 * d + 0][k]);
      sum[4 * d + 1][k] = fmaf(value.y, scaled[k], sum[4 * d + 1][k]);
      sum[4 * d + 2][k] = fmaf(value.z, scaled[k], sum[4 * d + 2][k]);
      sum[4 * d + 3][k] = fmaf(value.w, scaled[k], sum[4 * d + 3][k]);
    }
  }
}

// Where entry (k, l) of a symmetric matrix is kept.
__host__ __device__ constexpr int symmetric_index(int k, int l) {
  return k >= l ? k * (k + 1) / 2 + l : l * (l + 1) / 2 + k;
}

// moments += factor * u u^T
template <int kDin, int kPairs>
__device__ void add_moments(float factor, const float (&u)[kDin], float (&moments)[1][kPairs]) {
#pragma unroll
  for (int k = 0; k < kDin; ++k) {
    const float scaled = factor * u[k];
#pragma unroll
    for (int l = 0; l <= k; ++l)
      moments[0][symmetric_index(k, l)] = fmaf(scaled, u[l], moments[0][symmetric_index(k, l)]);
  }
}

// Adds the values of all warps to those of warp 0, half of the warps at a time.
//   halves  shared memory: kGradientWarps / 2 pieces of `piece` floats
template <int kRows, int kColumns>
__device__ void fold_warps(float* halves, int piece, float (&values)[kRows][kColumns]) {
  const int in_warp = threadIdx.x, warp = threadIdx.y;
  for (int half = kGradientWarps / 2; half > 0; half /= 2) {
    __syncthreads();
    if (warp >= half && warp < 2 * half)
#pragma unroll
      for (int e = 0; e < kRows * kColumns; ++e)
        halves[(warp - half) * piece + e * kGradientPitch + in_warp] =
            values[e / kColumns][e % kColumns];
    __syncthreads();
    if (warp < half)
#pragma unroll
      for (int e = 0; e < kRows * kColumns; ++e)
        values[e / kColumns][e % kColumns] += halves[warp * piece + e * kGradientPitch + in_warp];
  }
}

// A term of a vote's gradient: scale * shares[i, j] x_j.
struct PairTerm {
  const float* x;       // [J, D_out, P]; null: the term is zero (not if it is the only one)
  const float* shares;  // [I, J, P]; null: all are 1
  float scale;
};

template <int kTerms>
struct WeightGradientArguments {
  const float* children;  // [B, I, D_in]: reads of this layout are coalesced here
  const float* factors;   // [I, J, P]; null: all are `uniform`
  float uniform;
  PairTerm terms[kTerms];     // a single term has no shares
  const float* vote_factors;  // [I, J, P] or null; only with kWithVotes
  const float* weight;        // only with kWithVotes
  bool accumulate;
  float* grad_weight;
};

// The shares of four images in each term.
template <int kTerms>
struct TermShares {
  float of[kTerms][4];

  __device__ void load(const PairTerm (&terms)[kTerms], int64_t at) {
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      float4 share = {1, 1, 1, 1};
      if (terms[t].shares != nullptr)
        share = *reinterpret_cast<const float4*>(terms[t].shares + at);
      of[t][0] = terms[t].scale * share.x;
      of[t][1] = terms[t].scale * share.y;
      of[t][2] = terms[t].scale * share.z;
      of[t][3] = terms[t].scale * share.w;
    }
  }

  // Four rows of the sum of the terms for one image. Terms are `stride` apart in `rows`.
  __device__ float4 sum(int image, const float4* rows, int stride) const {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      const float4 row = rows[t * stride];
      sum.x = fmaf(of[t][image], row.x, sum.x);
      sum.y = fmaf(of[t][image], row.y, sum.y);
      sum.z = fmaf(of[t][image], row.z, sum.z);
      sum.w = fmaf(of[t][image], row.w, sum.w);
    }
    return sum;
  }
};

// grad_W_ij (+)= sum_b (factors[i, j, b] x_ij,b - vote_factors[i, j, b] u^_ij,b) u_i,b^T, where x
// is the sum of the terms. The second part equals W_ij sum_b vote_factors u u^T, so that it needs
// second moments of the child and no votes. A thread stays with one child, and the warps of a block
// share the images. The grid is
//   x  32 children
//   y  parent
//   z  kRows rows of D_out
template <int kDin, int kDout, int kRows, bool kWithVotes, int kTerms>
__global__ void __launch_bounds__(kWarp* kGradientWarps)
    weight_gradient(Dims dims, WeightGradientArguments<kTerms> a) {
  constexpr int kSize = kRows * kDin;  // sums per thread
  constexpr int kPairs = kWithVotes ? kDin * (kDin + 1) / 2 : 1;
  constexpr int kPiece = (kSize > kPairs ? kSize : kPairs) * kGradientPitch;
  constexpr int kTermRows = kGradientImages * kRows / 4;
  constexpr int kAllRows = kTerms * kTermRows, kHalves = (kGradientWarps / 2 * kPiece + 3) / 4;
  // First the rows of the terms, then, when all images are added up, the halves of the warps.
  __shared__ float4 shared[kAllRows > kHalves ? kAllRows : kHalves];
  float* halves = reinterpret_cast<float*>(shared);
  const int in_warp = threadIdx.x, warp = threadIdx.y, in_block = warp * kWarp + in_warp;
  const int i = blockIdx.x * kWarp + in_warp, j = blockIdx.y, row = blockIdx.z * kRows;
  const bool has_child = i < dims.children;
  constexpr int kShare = kGradientImages / kGradientWarps;

  float sum[kRows][kDin] = {};
  float moments[1][kPairs] = {};
  for (int first = 0; first < dims.batch; first += kGradientImages) {
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kTerms; ++t)
      for (int slot = in_block; slot < kGradientImages * kRows; slot += kWarp * kGradientWarps) {
        const int image = slot % kGradientImages, d = slot / kGradientImages;
        reinterpret_cast<float*>(shared + t * kTermRows)[image * kRows + d] =
            first + image < dims.batch && (kTerms == 1 || a.terms[t].x != nullptr)
                ? a.terms[t].x[int64_t(j * kDout + row + d) * dims.padded + first + image]
                : 0.0F;
      }
    __syncthreads();
    if (!has_child) continue;
    const int end = min(dims.batch, first + (warp + 1) * kShare);
    const int64_t pair = (int64_t(i) * dims.parents + j) * dims.padded;
    TermShares<kTerms> shares;  // used if there are several terms
    // `n` is the image's index among the four that are read together.
    const auto add = [&](int image, int n, float factor, float vote_factor) {
      if (image >= end) return;
      float u[kDin];
      load_pose<kDin>(
          reinterpret_cast<const float4*>(a.children + (int64_t(image) * dims.children + i) * kDin),
          u);
      const float4* rows = shared + (image - first) * (kRows / 4);
      const auto values = [&](int d) {
        if constexpr (kTerms == 1)
          return rows[d];
        else
          return shares.sum(n, rows + d, kTermRows);
      };
      add_outer_product<kDin, kRows>(factor, u, values, sum);
      if constexpr (kWithVotes) add_moments<kDin, kPairs>(vote_factor, u, moments);
    };
    for (int image = first + warp * kShare; image < end; image += 4) {
      float4 factor = {a.uniform, a.uniform, a.uniform, a.uniform}, vote_factor = {0, 0, 0, 0};
      if (a.factors != nullptr) factor = *reinterpret_cast<const float4*>(a.factors + pair + image);
      if (kWithVotes && a.vote_factors != nullptr)
        vote_factor = *reinterpret_cast<const float4*>(a.vote_factors + pair + image);
      if constexpr (kTerms > 1) shares.load(a.terms, pair + image);
      add(image, 0, factor.x, vote_factor.x);
      add(image + 1, 1, factor.y, vote_factor.y);
      add(image + 2, 2, factor.z, vote_factor.z);
      add(image + 3, 3, factor.w, vote_factor.w);
    }
  }

  fold_warps<kRows, kDin>(halves, kPiece, sum);
  if constexpr (kWithVotes) {
    fold_warps<1, kPairs>(halves, kPiece, moments);
    if (warp == 0 && has_child) {
      const float* w = a.weight + ((int64_t(i) * dims.parents + j) * kDout + row) * kDin;
#pragma unroll
      for (int d = 0; d < kRows; ++d) {
        float weights[kDin];
        load_pose<kDin>(reinterpret_cast<const float4*>(w + d * kDin), weights);
#pragma unroll
        for (int k = 0; k < kDin; ++k)
#pragma unroll
          for (int l = 0; l < kDin; ++l)
            sum[d][k] = fmaf(-weights[l], moments[0][symmetric_index(l, k)], sum[d][k]);
      }
    }
  }

  // Write the blocks out coalesced.
  __syncthreads();
  if (warp == 0)
#pragma unroll
    for (int e = 0; e < kSize; ++e) halves[e * kGradientPitch + in_warp] = sum[e / kDin][e % kDin];
  __syncthreads();
  for (int slot = in_block; slot < kSize * kWarp; slot += kWarp * kGradientWarps) {
    const int e = slot % kSize, child = slot / kSize;
    if (blockIdx.x * kWarp + child >= dims.children) break;
    float* out = a.grad_weight +
                 (int64_t(blockIdx.x * kWarp + child) * dims.parents + j) * kDout * kDin +
                 row * kDin + e;
    const float value = halves[e * kGradientPitch + child];
    *out = a.accumulate ? *out + value : value;
  }
}

}  // namespace remcaps::kernels::cuda
