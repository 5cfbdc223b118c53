// What a convolution by strips needs around its matrix products, on raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/window_shape.h"
#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

// Maps are channels-last and dense, their channels a multiple of 8; everything is aligned to 16
// bytes. Strip i of a phase comes from row i * stride_y + phase of the padded map.

/// strips [count, B, columns, kw * C]: of a row, what every window column sees.
void cut_strips(const WindowShape& shape, int64_t phase, int64_t count, MapType type,
                const void* map, void* strips, cudaStream_t stream);
/// The rows of a phase in `map`, each the sum of what its strip [B, columns, kw * C] has for its
/// pixels; `strips` holds `count` of them, the last one first. Rows without a strip become zero.
void fold_strips(const WindowShape& shape, int64_t phase, int64_t count, MapType type,
                 const void* strips, void* map, cudaStream_t stream);

/// A map [B, rows, columns, channels].
struct RowsShape {
  int64_t batch = 0, rows = 0, columns = 0, channels = 0;
};

/// map = bias (unless null) + the sum of parts [count, rows, B, columns, channels].
void sum_parts(const RowsShape& shape, int64_t count, const float* parts, const float* bias,
               MapType type, void* map, cudaStream_t stream);
/// The rows of a map side by side, the last one first, with `margin` rows of zeros before and
/// behind: spread [B, columns, rows + 2 * margin, channels].
void spread_rows(const RowsShape& shape, int64_t margin, MapType type, const void* map,
                 void* spread, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
