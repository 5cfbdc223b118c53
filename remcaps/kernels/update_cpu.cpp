#include <ATen/Parallel.h>

#include <algorithm>

#include "remcaps/kernels/update_kernels.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kPiece = 16384;  // floats of each array a task works on

void update_piece(const UpdateArrays& arrays, int64_t begin, int64_t end, const AdamConstants& adam,
                  const StepNumbers& step) {
  float* __restrict__ p = arrays.parameter;
  const float* __restrict__ g = arrays.gradient;
  float* __restrict__ m = arrays.first;
  float* __restrict__ v = arrays.second;
  for (int64_t x = begin; x < end; ++x) update_parameter(adam, step, g[x], p[x], m[x], v[x]);
  if (arrays.dead != nullptr)
    for (int64_t x = begin; x < end; ++x) p[x] = arrays.dead[x] != 0 ? 0.0F : p[x];
}

}  // namespace

void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers& step) {
  StepNumbers without_shrinking = step;
  without_shrinking.lambda = 0;
  for (const UpdateArrays& tensor : arrays) {
    const StepNumbers& numbers = tensor.shrink ? step : without_shrinking;
    const int64_t pieces = (tensor.count + kPiece - 1) / kPiece;
    at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        update_piece(tensor, piece * kPiece, std::min(tensor.count, (piece + 1) * kPiece), adam,
                     numbers);
    });
  }
}

}  // namespace remcaps::kernels::cpu
