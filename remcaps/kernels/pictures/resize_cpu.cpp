#include <algorithm>
#include <cmath>

#include "remcaps/kernels/pictures/resize.h"

namespace remcaps::kernels {
namespace {

// One pass: `lines` lines of `in` elements become lines of `out`. Elements lie `step` bytes apart,
// lines `from_line` and `to_line`.
void resize_lines(const uint8_t* from, uint8_t* to, int64_t in, int64_t out, int64_t lines,
                  int64_t step, int64_t from_line, int64_t to_line, bool antialias) {
  const ResizeTaps taps = make_resize_taps(in, out, antialias);
  for (int64_t x = 0; x < out; ++x) {
    const int64_t first = taps.first[static_cast<size_t>(x)];
    const int64_t count = std::min(taps.count, in - first);
    for (int64_t line = 0; line < lines; ++line) {
      const uint8_t* source = from + line * from_line + first * step;
      int32_t sum = kResizeHalf;
      for (int64_t k = 0; k < count; ++k)
        sum += source[k * step] * taps.weight[static_cast<size_t>(k * out + x)];
      to[line * to_line + x * step] = static_cast<uint8_t>(std::clamp(sum >> kResizeBits, 0, 255));
    }
  }
}

}  // namespace

ResizeTaps make_resize_taps(int64_t in, int64_t out, bool antialias) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  // When it shrinks, the filter covers what it merges.
  const double support = antialias ? std::max(scale, 1.0) : 1.0;
  ResizeTaps taps;
  taps.count = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.weight.resize(static_cast<size_t>(taps.count * out));
  std::vector<double> w(static_cast<size_t>(taps.count));
  for (int64_t x = 0; x < out; ++x) {
    const double centre = (static_cast<double>(x) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const int64_t last = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), in);
    double total = 0;
    for (int64_t k = 0; k < last - first; ++k) {
      const double distance =
          std::abs((static_cast<double>(k + first) - centre + 0.5) * (1.0 / support));
      w[static_cast<size_t>(k)] = std::max(0.0, 1.0 - distance);
      total += w[static_cast<size_t>(k)];
    }
    taps.first.push_back(first);
    for (int64_t k = 0; k < last - first; ++k)
      taps.weight[static_cast<size_t>(k * out + x)] = static_cast<int32_t>(
          0.5 + w[static_cast<size_t>(k)] / total * static_cast<double>(1 << kResizeBits));
  }
  return taps;
}

namespace cpu {

void resize_picture(const uint8_t* from, int64_t channels, int64_t from_height, int64_t from_width,
                    int64_t height, int64_t width, uint8_t* to, bool antialias) {
  std::vector<uint8_t> wide;
  if (from_width != width) {
    wide.resize(static_cast<size_t>(channels * from_height * width));
    resize_lines(from, wide.data(), from_width, width, channels * from_height, /*step=*/1,
                 from_width, width, antialias);
    from = wide.data();
  }
  if (from_height == height) {
    std::copy_n(from, channels * height * width, to);
    return;
  }
  for (int64_t plane = 0; plane < channels; ++plane)
    resize_lines(from + plane * from_height * width, to + plane * height * width, from_height,
                 height, width, /*step=*/width, 1, 1, antialias);
}

void split_planes(const uint8_t* pixels, int64_t count, int64_t channels, int64_t wanted,
                  uint8_t* planes) {
  for (int64_t i = 0; i < count; ++i, pixels += channels) {
    if (wanted == 1 && channels == 3) {
      // ITU-R 601 in 16-bit fixed point, as PIL's convert("L").
      planes[i] = static_cast<uint8_t>(
          (pixels[0] * 19595 + pixels[1] * 38470 + pixels[2] * 7471 + 0x8000) >> 16);
      continue;
    }
    for (int64_t c = 0; c < wanted; ++c) planes[c * count + i] = pixels[channels == 1 ? 0 : c];
  }
}

}  // namespace cpu
}  // namespace remcaps::kernels
