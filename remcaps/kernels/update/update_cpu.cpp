#include <algorithm>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/update/update.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kPiece = 16384;  // floats of each array per task

// libtorch aligns the memory it allocates, but a view into it may begin anywhere.
bool is_aligned(const UpdateArrays& arrays) {
  for (const void* array :
       {static_cast<const void*>(arrays.parameter), static_cast<const void*>(arrays.gradient),
        static_cast<const void*>(arrays.first), static_cast<const void*>(arrays.second)})
    if (reinterpret_cast<uintptr_t>(array) % 64 != 0) return false;
  return true;
}

void update_piece(const UpdateArrays& arrays, int64_t begin, int64_t end, const AdamConstants& adam,
                  const StepNumbers& step) {
  float* p = arrays.parameter;
  if (is_aligned(arrays))
    simd::update_range(arrays, begin, end, adam, step);
  else
    for (int64_t x = begin; x < end; ++x)
      update_parameter(adam, step, arrays.gradient[x], p[x], arrays.first[x], arrays.second[x]);
  if (arrays.dead != nullptr) simd::mask_range(arrays.dead, begin, end, p);
}

}  // namespace

void update(const std::vector<UpdateArrays>& arrays, const AdamConstants& adam,
            const StepNumbers& step) {
  StepNumbers without_shrinking = step;
  without_shrinking.lambda = 0;
  for (const UpdateArrays& tensor : arrays) {
    const StepNumbers& numbers = tensor.shrink ? step : without_shrinking;
    const int64_t pieces = (tensor.count + kPiece - 1) / kPiece;
    parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece)
        update_piece(tensor, piece * kPiece, std::min(tensor.count, (piece + 1) * kPiece), adam,
                     numbers);
    });
  }
}

}  // namespace remcaps::kernels::cpu
