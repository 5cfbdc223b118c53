// The SIMD loop of the sparse convolution: rows of a map, each times one weight, summed in
// registers.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// For each filter f < filters, with n from begins[f] to begins[f + 1] - 1:
///   sums[f * row + x] += sum_n weights[n] * map[starts[places[n]] + x]
struct SparseRows {
  int64_t filters = 0;
  const float* weights = nullptr;
  const uint16_t* places = nullptr;
  const int64_t* begins = nullptr;
  const int32_t* starts = nullptr;
  const float* map = nullptr;
  /// x runs from 0 to length - 1, rounded up to a multiple of kSparseMargin. The map and each row
  /// of sums must be that long.
  int64_t length = 0;
  float* sums = nullptr;
  int64_t row = 0;
};

/// Floats of the widest vector there is.
constexpr int64_t kSparseMargin = 16;

void add_sparse_rows(const SparseRows& rows);

/// Copies the sums to out [filters, length], without the gaps between rows. `relu`: only their
/// positive part.
void copy_sums(const SparseRows& rows, bool relu, float* out);

}  // namespace remcaps::kernels
