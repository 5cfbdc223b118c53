#include "remcaps/kernels/convolution/grouped_convolution.h"

#include <algorithm>

#include "remcaps/base/parallel.h"

namespace remcaps::kernels::cpu {
namespace {

// The places of a row or column whose windows have this tap inside the map: first..last - 1.
struct TapRange {
  TapRange(int64_t tap, int64_t padding, int64_t stride, int64_t size, int64_t places)
      : first(std::max<int64_t>(0, (padding - tap + stride - 1) / stride)),
        last(size + padding - tap <= 0
                 ? first
                 : std::max(first, std::min(places, (size - 1 + padding - tap) / stride + 1))) {}
  int64_t first, last;
};

// One filter of one image, one weight after the other: each is a multiply-add of rows.
void convolve_filter(const ConvolutionShape& shape, int64_t channels, const MapStrides& strides,
                     const float* map, const float* weight, float* out) {
  const int64_t height = shape.out_height(), width = shape.out_width();
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t ky = 0; ky < shape.kernel_height; ++ky) {
      const TapRange rows(ky, shape.padding_y, shape.stride_y, shape.height, height);
      for (int64_t kx = 0; kx < shape.kernel_width; ++kx) {
        const float value = *weight++;
        if (value == 0) continue;
        const TapRange columns(kx, shape.padding_x, shape.stride_x, shape.width, width);
        const int64_t step = shape.stride_x * strides.pixel;
        for (int64_t y = rows.first; y < rows.last; ++y) {
          const float* from = map + channel * strides.channel +
                              (y * shape.stride_y + ky - shape.padding_y) * strides.row +
                              (kx - shape.padding_x) * strides.pixel;
          float* to = out + y * width;
          for (int64_t x = columns.first; x < columns.last; ++x) to[x] += value * from[x * step];
        }
      }
    }
}

}  // namespace

void grouped_convolution(const ConvolutionShape& shape, int64_t groups, const MapStrides& strides,
                         const float* map, const float* weight, const float* bias, float* out) {
  const int64_t channels = shape.channels / groups, filters = shape.filters / groups;
  const int64_t places = shape.out_height() * shape.out_width();
  parallel_for(0, shape.batch * shape.filters, /*grain=*/8, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t image = at / shape.filters, filter = at % shape.filters;
      float* to = out + at * places;
      std::fill_n(to, places, bias != nullptr ? bias[filter] : 0.0F);
      convolve_filter(shape, channels, strides,
                      map + image * strides.image + filter / filters * channels * strides.channel,
                      weight + filter * channels * shape.taps(), to);
    }
  });
}

}  // namespace remcaps::kernels::cpu
