#include "remcaps/kernels/convolution/int8_convolution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/simd/buffer.h"

// Older compilers lack the instructions; clang, which calls itself GNU 4, is not tried.
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12
#define REMCAPS_VNNI
#include <immintrin.h>
#endif

namespace remcaps::kernels {
namespace {

constexpr int64_t kImages = 4;    // that a task takes over a panel
constexpr int64_t kRowGrain = 4;  // rows of a map that a thread rounds at least
constexpr float kLeast = 1e-30F;  // a map without a larger number is a map of zeros

void plain_product(const ByteTile& t) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t x = 0; x < kBytePanel; ++x)
      for (int64_t k = 0; k < t.quads; ++k)
        for (int64_t i = 0; i < kByteQuad; ++i)
          t.sums[r * t.sums_row + x] +=
              t.a[r * t.a_row + k * kByteQuad + i] * t.b[(k * kBytePanel + x) * kByteQuad + i];
}

#ifdef REMCAPS_VNNI

#define REMCAPS_BYTES __attribute__((target("avx512f,avx512bw,avx512vnni")))

// Twelve sums stay in registers; a step loads two registers of b and broadcasts four bytes per row.
template <int kRows>
REMCAPS_BYTES void vnni_rows(const ByteTile& t) {
  __m512i left[kRows], right[kRows];
  for (int r = 0; r < kRows; ++r) {
    left[r] = _mm512_loadu_si512(t.sums + r * t.sums_row);
    right[r] = _mm512_loadu_si512(t.sums + r * t.sums_row + kByteLanes);
  }
  const int8_t* b = t.b;
  for (int64_t k = 0; k < t.quads; ++k, b += kBytePanel * kByteQuad) {
    const __m512i b_left = _mm512_loadu_si512(b);
    const __m512i b_right = _mm512_loadu_si512(b + kByteLanes * kByteQuad);
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, t.a + r * t.a_row + k * kByteQuad, sizeof four);
      const __m512i factor = _mm512_set1_epi32(four);
      left[r] = _mm512_dpbusd_epi32(left[r], factor, b_left);
      right[r] = _mm512_dpbusd_epi32(right[r], factor, b_right);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_si512(t.sums + r * t.sums_row, left[r]);
    _mm512_storeu_si512(t.sums + r * t.sums_row + kByteLanes, right[r]);
  }
}

void vnni_product(const ByteTile& tile) {
  switch (tile.rows) {
    case 1:
      return vnni_rows<1>(tile);
    case 2:
      return vnni_rows<2>(tile);
    case 3:
      return vnni_rows<3>(tile);
    case 4:
      return vnni_rows<4>(tile);
    case 5:
      return vnni_rows<5>(tile);
    default:
      return vnni_rows<kByteRows>(tile);
  }
}

#endif

// How an image becomes bytes: x = (byte - zero) * scale.
struct Rounding {
  float scale = 1;
  uint8_t zero = 0;
};

// Looks at bits, because loops over floats that seek a maximum are not vectorized.
void find_range(const float* values, int64_t count, uint32_t& largest, uint32_t& negative) {
  constexpr uint32_t kSign = uint32_t{1} << 31;
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    largest = std::max(largest, bits & ~kSign);
    negative |= bits > kSign ? 1U : 0U;  // not -0
  }
}

Rounding rounding_of(const cpu::MapView& map, int64_t image) {
  uint32_t largest = 0, negative = 0;
  for (int64_t y = 0; y < map.height; ++y) {
    if (map.strides.channel == 1 && map.strides.pixel == map.channels) {
      find_range(map.at(image, 0, y, 0), map.width * map.channels, largest, negative);
      continue;
    }
    for (int64_t x = 0; x < map.width; ++x)
      for (int64_t c = 0; c < map.channels; ++c)
        find_range(map.at(image, c, y, x), 1, largest, negative);
  }
  const auto magnitude = std::bit_cast<float>(largest);
  if (!std::isfinite(magnitude)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (magnitude < kLeast) return {};
  return negative != 0 ? Rounding{magnitude / 127, 128} : Rounding{magnitude / 255, 0};
}

void round_values(const float* from, int64_t count, const Rounding& rounding, uint8_t* to) {
  const float inverse = 1 / rounding.scale, half = static_cast<float>(rounding.zero) + 0.5F;
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<uint8_t>(static_cast<int32_t>(from[i] * inverse + half));
}

// The map with its padding as bytes [B, H + 2 py, W + 2 px, channels].
std::vector<uint8_t> rounded_map(const ConvolutionShape& shape, const cpu::MapView& map,
                                 int64_t channels, const std::vector<Rounding>& roundings) {
  const int64_t height = map.height + 2 * shape.padding_y, width = map.width + 2 * shape.padding_x;
  std::vector<uint8_t> bytes(static_cast<size_t>(map.batch * height * width * channels));
  parallel_for(0, map.batch * height, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / height, y = row % height - shape.padding_y;
      const Rounding& rounding = roundings[static_cast<size_t>(image)];
      uint8_t* to = bytes.data() + row * width * channels;
      std::fill_n(to, width * channels, rounding.zero);
      if (y < 0 || y >= map.height || std::isnan(rounding.scale)) continue;
      to += shape.padding_x * channels;
      for (int64_t x = 0; x < map.width; ++x, to += channels) {
        if (map.strides.channel == 1) {
          round_values(map.at(image, 0, y, x), map.channels, rounding, to);
          continue;
        }
        for (int64_t c = 0; c < map.channels; ++c)
          round_values(map.at(image, c, y, x), 1, rounding, to + c);
      }
    }
  });
  return bytes;
}

}  // namespace

ByteProduct byte_product() {
#ifdef REMCAPS_VNNI
  if (__builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vnni") != 0)
    return vnni_product;
#endif
  return nullptr;
}

ByteProduct plain_byte_product() {
  return plain_product;
}

namespace cpu {

ByteFilters::ByteFilters(const ConvolutionShape& shape, const std::vector<int8_t>& weight,
                         std::vector<float> scales)
    : channels_(pieces_of(shape.channels, kByteQuad) * kByteQuad),
      panels_(pieces_of(shape.filters, kBytePanel)),
      kernel_height_(shape.kernel_height),
      row_quads_(shape.kernel_width * channels_ / kByteQuad),
      bytes_(static_cast<size_t>(panels_ * kernel_height_ * row_quads_ * kBytePanel * kByteQuad)),
      scales_(std::move(scales)),
      sums_(scales_.size()) {
  auto from = weight.begin();
  for (int64_t f = 0; f < shape.filters; ++f)
    for (int64_t c = 0; c < shape.channels; ++c)
      for (int64_t ky = 0; ky < shape.kernel_height; ++ky)
        for (int64_t kx = 0; kx < shape.kernel_width; ++kx, ++from) {
          const int64_t place = kx * channels_ + c;  // in the row of the kernel
          const int64_t quad =
              (f / kBytePanel * kernel_height_ + ky) * row_quads_ + place / kByteQuad;
          bytes_[static_cast<size_t>((quad * kBytePanel + f % kBytePanel) * kByteQuad +
                                     place % kByteQuad)] = *from;
          sums_[static_cast<size_t>(f)] += *from;
        }
}

void byte_convolution(const ConvolutionShape& shape, const MapView& map, const ByteFilters& filters,
                      const float* bias, bool relu, ByteProduct product, float* out) {
  std::vector<Rounding> roundings(static_cast<size_t>(map.batch));
  parallel_for(0, map.batch, /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image)
      roundings[static_cast<size_t>(image)] = rounding_of(map, image);
  });
  const std::vector<uint8_t> bytes = rounded_map(shape, map, filters.channels(), roundings);
  const int64_t height = map.height + 2 * shape.padding_y, width = map.width + 2 * shape.padding_x;
  const int64_t pixel = filters.channels(), rows = shape.out_height(), columns = shape.out_width();
  const int64_t groups = pieces_of(map.batch, kImages);
  TaskQueue queue(groups * filters.panels());
  on_every_thread([&] {
    std::vector<int32_t> sums(static_cast<size_t>(kImages * rows * columns * kBytePanel));
    while (const auto task = queue.next()) {
      const int64_t first = *task % groups * kImages, panel = *task / groups;
      const int64_t count = std::min(kImages, map.batch - first);
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t ky = 0; ky < shape.kernel_height; ++ky)  // its part of the panel stays cached
        for (int64_t line = 0; line < count * rows; ++line) {
          const int64_t image = first + line / rows, y = line % rows * shape.stride_y + ky;
          const uint8_t* from = bytes.data() + (image * height + y) * width * pixel;
          for (int64_t x = 0; x < columns; x += kByteRows)
            product({.a = from + x * shape.stride_x * pixel,
                     .a_row = shape.stride_x * pixel,
                     .b = filters.at(panel, ky),
                     .quads = filters.row_quads(),
                     .sums = sums.data() + (line * columns + x) * kBytePanel,
                     .sums_row = kBytePanel,
                     .rows = std::min(kByteRows, columns - x)});
        }
      const int64_t begin = panel * kBytePanel;
      const int64_t end = std::min(begin + kBytePanel, filters.filters());
      for (int64_t place = 0; place < count * rows * columns; ++place) {
        const Rounding& rounding = roundings[static_cast<size_t>(first + place / (rows * columns))];
        const int32_t* from = sums.data() + place * kBytePanel;
        float* to = out + (first * rows * columns + place) * filters.filters();
        for (int64_t f = begin; f < end; ++f) {
          const auto sum = static_cast<float>(from[f - begin] - rounding.zero * filters.sum(f));
          const float value = sum * (filters.scale(f) * rounding.scale) + (bias ? bias[f] : 0.0F);
          to[f] = relu && value < 0 ? 0 : value;
        }
      }
    }
  });
}

}  // namespace cpu
}  // namespace remcaps::kernels
