#include "remcaps/data/resize.h"

#include <cmath>

#include "remcaps/base/error.h"

namespace remcaps {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // bits of a weight, so that a sum of bytes fits 32

// What every output position reads: K source positions from `first` on, and their weights.
struct Taps {
  int64_t count = 0;            // K
  std::vector<int64_t> first;   // [out]
  std::vector<int32_t> weight;  // [K, out], 2^22 is one
};

Taps make_taps(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);  // shrinking: the filter covers what it merges
  Taps taps;
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
          0.5 + w[static_cast<size_t>(k)] / total * static_cast<double>(1 << kPrecision));
  }
  return taps;
}

uint8_t round_to_byte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

constexpr int32_t kHalf = 1 << (kPrecision - 1);

// One pass along `dim` (-1 or -2), as tensor operations.
torch::Tensor resize_along(const torch::Tensor& images, int64_t dim, int64_t out) {
  const int64_t in = images.size(dim);
  if (in == out) return images;
  const Taps taps = make_taps(in, out);
  const torch::Tensor first = torch::tensor(taps.first, torch::kInt64).to(images.device());
  const torch::Tensor weights =
      torch::tensor(taps.weight, torch::kInt32).view({taps.count, out}).to(images.device());
  torch::Tensor sum;
  for (int64_t k = 0; k < taps.count; ++k) {
    // Where a position has fewer taps the weight is zero: any place inside will do.
    const torch::Tensor place = (first + k).clamp_max(in - 1);
    const torch::Tensor weight = dim == -2 ? weights[k].unsqueeze(-1) : weights[k];
    torch::Tensor term = images.index_select(dim, place).to(torch::kInt32).mul_(weight);
    sum = sum.defined() ? sum.add_(term) : term.add_(kHalf);
  }
  return sum.bitwise_right_shift(kPrecision).clamp_(0, 255).to(torch::kUInt8);
}

// One pass in plain loops: `lines` lines of `in` elements become lines of `out`. Elements lie
// `step` bytes apart, lines `from_line` and `to_line`.
void resize_lines(const uint8_t* from, uint8_t* to, int64_t in, int64_t out, int64_t lines,
                  int64_t step, int64_t from_line, int64_t to_line) {
  const Taps taps = make_taps(in, out);
  for (int64_t x = 0; x < out; ++x) {
    const int64_t first = taps.first[static_cast<size_t>(x)];
    const int64_t count = std::min(taps.count, in - first);
    for (int64_t line = 0; line < lines; ++line) {
      const uint8_t* source = from + line * from_line + first * step;
      int32_t sum = kHalf;
      for (int64_t k = 0; k < count; ++k)
        sum += source[k * step] * taps.weight[static_cast<size_t>(k * out + x)];
      to[line * to_line + x * step] = round_to_byte(sum);
    }
  }
}

}  // namespace

torch::Tensor resize_images(const torch::Tensor& images, int64_t height, int64_t width) {
  check(images.scalar_type() == torch::kUInt8 && images.dim() >= 2,
        "resize: a tensor of {} dimensions and type {}; expected bytes of [..., H, W]",
        images.dim(), torch::toString(images.scalar_type()));
  check(height > 0 && width > 0, "resize: asked for {} x {} pixels", height, width);
  return resize_along(resize_along(images, -1, width), -2, height);
}

torch::Tensor resize_picture(const torch::Tensor& picture, int64_t height, int64_t width) {
  check(picture.scalar_type() == torch::kUInt8 && picture.dim() == 3 && picture.is_contiguous(),
        "resize: a tensor of {} dimensions and type {}; expected contiguous bytes of [C, H, W]",
        picture.dim(), torch::toString(picture.scalar_type()));
  const int64_t c = picture.size(0), h = picture.size(1), w = picture.size(2);
  torch::Tensor result = picture;
  if (w != width) {
    result = torch::empty({c, h, width}, torch::kUInt8);
    resize_lines(picture.data_ptr<uint8_t>(), result.data_ptr<uint8_t>(), w, width, c * h,
                 /*step=*/1, w, width);
  }
  if (h == height) return result;
  const torch::Tensor wide = result;
  result = torch::empty({c, height, width}, torch::kUInt8);
  for (int64_t plane = 0; plane < c; ++plane)
    resize_lines(wide.data_ptr<uint8_t>() + plane * h * width,
                 result.data_ptr<uint8_t>() + plane * height * width, h, height, width,
                 /*step=*/width, 1, 1);
  return result;
}

}  // namespace remcaps
