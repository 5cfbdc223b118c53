// The cheap steps between the vote kernels of routing on CUDA: layouts, softmax, squash, and their
// gradients. Arrays in lanes layout, see routing_votes.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "remcaps/kernels/routing/problem.h"
#include "remcaps/kernels/routing/votes_cuda.h"

namespace remcaps::kernels::cuda {

// sums = scale * (sum of all chunks) + bias; poses = squash(sums); agreed = before + poses.
// All arrays [J, D_out, P] but bias [J, D_out].
struct SquashArguments {
  const float* partial;
  int chunks;
  float scale, epsilon;
  const float* bias;           // or null
  const float* agreed_before;  // or null: zero
  float *sums, *poses;
  float* agreed;  // or null: not wanted
};

// carried += sum of all chunks (chunks = 0: as it is); grad_sums = dL/ds out of dL/dv = carried.
struct SquashGradientArguments {
  const float* partial;
  int chunks;
  float epsilon;
  bool fresh;  // carried starts at zero
  const float* sums;
  float *carried, *grad_sums;
};

// Launches the steps of one problem on one stream.
class RoutingSteps {
 public:
  RoutingSteps(const Dims& dims, cudaStream_t stream) : dims_(dims), stream_(stream) {}

  // [B, size] -> [size, P], zero beyond the batch; and back.
  void lanes_from(int64_t size, const float* from, float* to) const;
  void rows_from(int64_t size, const float* from, float* to) const;

  // Logits [I, J, P], times an image's scale [P] (null: 1), into couplings, the same or another
  // array.
  void softmax(const float* scales, const CouplingLevels& levels, const float* logits,
               float* couplings) const;
  // dL/dc into dL/db, in place.
  void softmax_backward(const float* couplings, float* gradient) const;

  void squash(const SquashArguments& arguments) const;
  void squash_backward(const SquashGradientArguments& arguments) const;

  // grad_bias[J, D_out] = sum over iterations and images of grad_sums [iterations, J, D_out, P].
  void bias_gradient(int iterations, const float* grad_sums, float* grad_bias) const;
  // Couplings [I, J, P] (null: all `uniform`) to [B, I, J].
  void give_couplings(const float* from, float uniform, float* to) const;

 protected:
  Dims dims_;
  cudaStream_t stream_;
};

}  // namespace remcaps::kernels::cuda
