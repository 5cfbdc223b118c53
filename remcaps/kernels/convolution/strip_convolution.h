// The copies around the matrix products of a convolution by strips (ops/strip_convolution.h), on
// raw pointers.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/pointwise/pointwise.h"

#ifdef REMCAPS_CUDA
namespace remcaps::kernels::cuda {

// Maps are channels-last and dense, and their channels are a multiple of 8. All pointers are
// aligned to 16 bytes. Strip i of a phase is row i * stride_y + phase of the padded map.

/// strips [count, B, columns, kw * C]: for every column of windows the pixels it sees of the row.
void cut_strips(const ConvolutionShape& shape, int64_t phase, int64_t count, MapType type,
                const void* map, void* strips, cudaStream_t stream);
/// The reverse: each pixel in the rows of a phase becomes the sum of its copies in its strip
/// [B, columns, kw * C]. `strips` holds `count` strips, the last one first. Rows without a strip
/// become zero.
void fold_strips(const ConvolutionShape& shape, int64_t phase, int64_t count, MapType type,
                 const void* strips, void* map, cudaStream_t stream);

/// A map [B, rows, columns, channels].
struct RowsShape {
  int64_t batch = 0, rows = 0, columns = 0, channels = 0;
};

/// map = bias (unless null) + the sum of parts [count, rows, B, columns, channels].
void sum_parts(const RowsShape& shape, int64_t count, const float* parts, const float* bias,
               MapType type, void* map, cudaStream_t stream);
/// The rows of a map side by side, the last one first, between `margin` rows of zeros on each side:
/// spread [B, columns, rows + 2 * margin, channels].
void spread_rows(const RowsShape& shape, int64_t margin, MapType type, const void* map,
                 void* spread, cudaStream_t stream);

}  // namespace remcaps::kernels::cuda
#endif
