#include "remcaps/kernels/pointwise/maps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "remcaps/base/parallel.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kFloatsPerThread = 16384;

int64_t row_grain(const MapView& map) {
  return std::max<int64_t>(1, kFloatsPerThread / std::max<int64_t>(1, map.channels * map.width));
}

// work(image, row) for all rows, on all threads.
template <typename Work>
void for_each_map_row(const MapView& map, const Work& work) {
  parallel_for(0, map.batch * map.height, row_grain(map), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) work(at / map.height, at % map.height);
  });
}

// x <- change(image, channel, x) for all values, in the order in which they lie.
template <typename Change>
void change_values(const MapView& map, const Change& change) {
  for_each_map_row(map, [&](int64_t image, int64_t y) {
    if (map.strides.channel == 1) {
      for (int64_t x = 0; x < map.width; ++x) {
        float* pixel = map.at(image, 0, y, x);
        for (int64_t c = 0; c < map.channels; ++c) pixel[c] = change(image, c, pixel[c]);
      }
      return;
    }
    for (int64_t c = 0; c < map.channels; ++c) {
      float* row = map.at(image, c, y, 0);
      for (int64_t x = 0; x < map.width; ++x) {
        float& value = row[x * map.strides.pixel];
        value = change(image, c, value);
      }
    }
  });
}

// The largest value of the window whose first place is (top, left).
float largest(const MapView& map, int64_t image, int64_t channel, int64_t top, int64_t left,
              int64_t kernel) {
  float result = -std::numeric_limits<float>::infinity();
  for (int64_t y = std::max<int64_t>(0, top); y < std::min(map.height, top + kernel); ++y)
    for (int64_t x = std::max<int64_t>(0, left); x < std::min(map.width, left + kernel); ++x)
      result = std::max(result, *map.at(image, channel, y, x));
  return result;
}

}  // namespace

void scale_and_shift(const MapView& map, const float* scale, const float* shift) {
  change_values(map, [=](int64_t, int64_t c, float x) { return scale[c] * x + shift[c]; });
}

void instance_norm(const MapView& map, const float* scale, const float* shift, float epsilon) {
  parallel_for(0, map.batch * map.channels, /*grain=*/8, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t image = at / map.channels, c = at % map.channels;
      const auto places = static_cast<double>(map.height * map.width);
      const auto for_each = [&](const auto& work) {
        for (int64_t y = 0; y < map.height; ++y)
          for (int64_t x = 0; x < map.width; ++x) work(*map.at(image, c, y, x));
      };
      double sum = 0, squares = 0;
      for_each([&](float& value) { sum += value; });
      const double mean = sum / places;
      for_each([&](float& value) { squares += (value - mean) * (value - mean); });
      const double factor = scale[c] / std::sqrt(squares / places + epsilon);
      for_each(
          [&](float& value) { value = static_cast<float>((value - mean) * factor + shift[c]); });
    }
  });
}

void leaky_relu(const MapView& map, float slope) {
  change_values(map, [=](int64_t, int64_t, float x) { return x > 0 ? x : slope * x; });
}

void add_map(const MapView& from, const MapView& to) {
  for_each_map_row(to, [&](int64_t image, int64_t y) {
    for (int64_t x = 0; x < to.width; ++x)
      for (int64_t c = 0; c < to.channels; ++c) *to.at(image, c, y, x) += *from.at(image, c, y, x);
  });
}

void copy_map(const MapView& from, const MapView& to) {
  const int64_t top = (to.height - from.height) / 2, left = (to.width - from.width) / 2;
  for_each_map_row(to, [&](int64_t image, int64_t y) {
    const bool outside = y < top || y >= top + from.height;
    for (int64_t x = 0; x < to.width; ++x) {
      const bool empty = outside || x < left || x >= left + from.width;
      float* pixel = to.at(image, 0, y, x);
      const float* source = empty ? nullptr : from.at(image, 0, y - top, x - left);
      for (int64_t c = 0; c < to.channels; ++c)
        pixel[c * to.strides.channel] = empty ? 0.0F : source[c * from.strides.channel];
    }
  });
}

void max_pool(const MapView& from, int64_t kernel, int64_t stride, int64_t padding,
              const MapView& to) {
  for_each_map_row(to, [&](int64_t image, int64_t y) {
    for (int64_t x = 0; x < to.width; ++x)
      for (int64_t c = 0; c < to.channels; ++c)
        *to.at(image, c, y, x) =
            largest(from, image, c, y * stride - padding, x * stride - padding, kernel);
  });
}

void squash_capsules(SquashForm form, float epsilon, int64_t count, int64_t dim, float* capsules) {
  for (int64_t i = 0; i < count; ++i, capsules += dim) {
    float n2 = 0;
    for (int64_t d = 0; d < dim; ++d) n2 += capsules[d] * capsules[d];
    const float factor = squash_factor(form, n2, epsilon);
    for (int64_t d = 0; d < dim; ++d) capsules[d] *= factor;
  }
}

}  // namespace remcaps::kernels::cpu
