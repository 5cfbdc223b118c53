// The SIMD loop of convolutions with few weights: rows of a map, each times one weight, added up in
// registers.
#pragma once

#include <cstdint>

namespace remcaps::kernels {

/// For each filter f < filters
///   sums[f * row + x] += sum_n weights[n] * map[starts[places[n]] + x],  begins[f] <= n < begins[f
///   + 1]
struct SparseRows {
  int64_t filters = 0;
  const float* weights = nullptr;
  const uint16_t* places = nullptr;
  const int64_t* begins = nullptr;
  const int32_t* starts = nullptr;
  const float* map = nullptr;
  /// x runs from 0 to length - 1, rounded up to a multiple of kSparseMargin: the map has to go on,
  /// and a row of sums to have room, for as much.
  int64_t length = 0;
  float* sums = nullptr;
  int64_t row = 0;
};

/// Floats of the widest vector there is.
constexpr int64_t kSparseMargin = 16;

void add_sparse_rows(const SparseRows& rows);

/// What the sums have become, without the room between rows: out [filters, length]. `relu`: their
/// positive part.
void copy_sums(const SparseRows& rows, bool relu, float* out);

}  // namespace remcaps::kernels
