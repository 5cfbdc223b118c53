// Convolutions in groups on the CPU: each filter sees only the channels of its group. A depthwise
// convolution has as many groups as channels.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/shape.h"

namespace remcaps::kernels::cpu {

/// map in any layout, weight [F, C / groups, kh, kw], bias [F] or null -> out [B, F, oh, ow].
/// Channels and filters are multiples of `groups`.
void grouped_convolution(const ConvolutionShape& shape, int64_t groups, const MapStrides& strides,
                         const float* map, const float* weight, const float* bias, float* out);

}  // namespace remcaps::kernels::cpu
