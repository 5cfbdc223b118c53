#include "remcaps/data/affine_digits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "remcaps/base/parallel.h"
#include "remcaps/base/random.h"

namespace remcaps {
namespace {

constexpr double kMostDegrees = 20, kMostShear = 0.2, kLeastScale = 0.8, kMostScale = 1.2;

// (x, y) of the digit, from its middle, becomes (xx x + xy y, yx x + yy y).
struct Linear {
  double xx, xy, yx, yy;

  Linear inverse() const {
    const double determinant = xx * yy - xy * yx;
    return {yy / determinant, -xy / determinant, -yx / determinant, xx / determinant};
  }
};

// Where pixels' squares begin and end along one axis.
struct Extent {
  double low = std::numeric_limits<double>::max(), high = std::numeric_limits<double>::lowest();

  void add(double centre, double half) {
    low = std::min(low, centre - half);
    high = std::max(high, centre + half);
  }
};

// Uniform numbers in [0, 1) of one image.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t digit, uint64_t version)
      : seed_(seed), digit_(digit), version_(version) {}

  double next(double low, double high) {
    const uint32_t bits = random_bits(seed_, RandomStream::kAugment, version_, digit_, draw_++);
    return low + (high - low) * bits / 4294967296.0;
  }

 private:
  uint64_t seed_, digit_, version_;
  uint32_t draw_ = 0;
};

// Scaled, then sheared, then rotated.
Linear draw_linear(Draws& draws) {
  const double angle = draws.next(-kMostDegrees, kMostDegrees) * std::numbers::pi / 180;
  const double shear = draws.next(-kMostShear, kMostShear);
  const double wide = draws.next(kLeastScale, kMostScale);
  const double high = draws.next(kLeastScale, kMostScale);
  const double c = std::cos(angle), s = std::sin(angle);
  return {c * wide, (c * shear - s) * high, s * wide, (s * shear + c) * high};
}

// Where the middle of the digit goes along one axis, so that its ink lies in 0..side.
double draw_place(Draws& draws, const Extent& ink, double side) {
  const double first = -ink.low, last = side - ink.high;
  const double share = draws.next(0, 1);
  return first <= last ? first + share * (last - first) : (first + last) / 2;
}

// A digit with a border of zeros, so that a pixel's four neighbours are always there.
class Digit {
 public:
  Digit(const uint8_t* pixels, int64_t height, int64_t width)
      : height_(height), width_(width), padded_(static_cast<size_t>((height + 2) * (width + 2))) {
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        padded_[place(x, y)] = pixels[y * width + x];
        if (pixels[y * width + x] != 0) ink_.emplace_back(x - middle_x(), y - middle_y());
      }
  }

  // Draws a version of it into [side, side] zeros.
  void draw(Draws& draws, uint8_t* image, int64_t side) const {
    const Linear linear = draw_linear(draws);
    // Half of the box around a pixel's square, which becomes a parallelogram.
    const double half_x = (std::abs(linear.xx) + std::abs(linear.xy)) / 2;
    const double half_y = (std::abs(linear.yx) + std::abs(linear.yy)) / 2;
    Extent across, down;
    for (const auto& [x, y] : ink_) {
      across.add(linear.xx * x + linear.xy * y, half_x);
      down.add(linear.yx * x + linear.yy * y, half_y);
    }
    if (ink_.empty()) return;
    const auto length = static_cast<double>(side);
    const double to_x = draw_place(draws, across, length);
    const double to_y = draw_place(draws, down, length);
    const Linear back = linear.inverse();
    // Interpolation spreads ink by up to half a pixel's square more.
    const auto first = [](double at) { return std::max<int64_t>(0, std::lround(std::floor(at))); };
    const auto last = [side](double at) { return std::min(side, std::lround(std::ceil(at))); };
    const int64_t left = first(to_x + across.low - half_x);
    const int64_t right = last(to_x + across.high + half_x);
    const int64_t bottom = last(to_y + down.high + half_y);
    for (int64_t row = first(to_y + down.low - half_y); row < bottom; ++row)
      for (int64_t column = left; column < right; ++column) {
        const double x = static_cast<double>(column) + 0.5 - to_x;
        const double y = static_cast<double>(row) + 0.5 - to_y;
        image[row * side + column] =
            pixel(back.xx * x + back.xy * y + middle_x(), back.yx * x + back.yy * y + middle_y());
      }
  }

 private:
  double middle_x() const { return static_cast<double>(width_ - 1) / 2; }
  double middle_y() const { return static_cast<double>(height_ - 1) / 2; }

  size_t place(int64_t x, int64_t y) const {
    return static_cast<size_t>((y + 1) * (width_ + 2) + x + 1);
  }

  uint8_t pixel(double x, double y) const {
    const double left = std::floor(x), top = std::floor(y);
    if (left < -1 || top < -1 || left >= static_cast<double>(width_) ||
        top >= static_cast<double>(height_))
      return 0;
    const size_t at = place(static_cast<int64_t>(left), static_cast<int64_t>(top));
    const size_t below = at + static_cast<size_t>(width_ + 2);
    const double right = x - left, down = y - top;
    const double upper = padded_[at] + right * (padded_[at + 1] - padded_[at]);
    const double lower = padded_[below] + right * (padded_[below + 1] - padded_[below]);
    return static_cast<uint8_t>(upper + down * (lower - upper) + 0.5);
  }

  int64_t height_, width_;
  std::vector<int> padded_;
  std::vector<std::pair<double, double>> ink_;  // from the middle
};

}  // namespace

Dataset affine_digits(const Dataset& digits, int64_t side, int64_t versions, uint64_t seed) {
  const torch::Tensor pixels = digits.images.contiguous();
  const int64_t count = pixels.size(0), height = pixels.size(2), width = pixels.size(3);
  Dataset result;
  result.images = torch::zeros({count * versions, 1, side, side}, torch::kUInt8);
  result.labels = digits.labels.repeat_interleave(versions);
  const auto* from = pixels.data_ptr<uint8_t>();
  auto* to = result.images.data_ptr<uint8_t>();
  parallel_for(0, count, /*grain=*/8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Digit digit(from + i * height * width, height, width);
      for (int64_t v = 0; v < versions; ++v) {
        Draws draws(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(v));
        digit.draw(draws, to + (i * versions + v) * side * side, side);
      }
    }
  });
  return result;
}

}  // namespace remcaps
