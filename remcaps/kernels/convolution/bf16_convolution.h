// Convolutions over channels-last maps in bfloat16, for CPUs with AMX: forward only.
//
// A product of tiles needs rows at equal distances, and the windows of a map do not have them. The
// windows are therefore rounded into panels, one row of the kernel at a time (all rows at once if
// they are short). A panel of some windows (0.9 MB in DR-CapsNet) stays in the second-level cache
// while all filters pass over it. Factors are bfloat16, sums are float32. Results do not depend on
// the number of threads.
#pragma once

#include "remcaps/kernels/convolution/bf16_tiles.h"
#include "remcaps/kernels/convolution/shape.h"

namespace remcaps::kernels::cpu {

/// map [B, H, W, C], weight [F, C, kh, kw], bias [F] or null -> out [B, oh, ow, F], all float32.
/// No padding. `relu`: only the positive part.
void bf16_convolution(const ConvolutionShape& shape, const TileUnit& unit, const float* map,
                      const float* weight, const float* bias, bool relu, float* out);

}  // namespace remcaps::kernels::cpu
