#include "remcaps/kernels/convolution/convolution.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/convolution/tile_product.h"

namespace remcaps::kernels::cpu {
namespace {

constexpr int64_t kImages = 4;           // images that a task takes over a panel
constexpr int64_t kDepth = 256;          // pixels that a tile of a weight gradient sums at a time
constexpr int64_t kShortRow = 64;        // floats: shorter rows of a kernel are unfolded
constexpr int64_t kUnfoldGrain = 32768;  // floats that a thread copies at least

// Calls body(first image, last image + 1, block) with all images of a block before the next block,
// so that the block's panels stay in the cache. The next free thread takes the next task.
template <typename Body>
void for_images_of_blocks(int64_t batch, int64_t blocks, const Body& body) {
  const int64_t groups = pieces_of(batch, kImages);
  TaskQueue queue(groups * blocks);
  on_every_thread([&] {
    while (const auto task = queue.next()) {
      const int64_t first = *task % groups * kImages;
      body(first, std::min(batch, first + kImages), *task / groups);
    }
  });
}

// The pixels of the map that one tap of the kernel meets, [B * oh * ow, C].
void gather_pixels(const ConvolutionShape& shape, const float* map, int64_t tap, float* pixels) {
  const int64_t ky = tap / shape.kernel_width, kx = tap % shape.kernel_width;
  for (int64_t image = 0; image < shape.batch; ++image)
    for (int64_t y = 0; y < shape.out_height(); ++y) {
      const float* row =
          map +
          ((image * shape.height + y * shape.stride_y + ky) * shape.width + kx) * shape.channels;
      for (int64_t x = 0; x < shape.out_width(); ++x, pixels += shape.channels)
        std::copy_n(row + x * shape.stride_x * shape.channels, shape.channels, pixels);
    }
}

// The windows of one row of places. A pixel step of 1 is a constant to the compiler.
template <typename Step>
void unfold_row(const ConvolutionShape& shape, const MapStrides& strides, Step pixel,
                const float* map, float* to) {
  for (int64_t x = 0; x < shape.out_width(); ++x, map += shape.stride_x * pixel)
    for (int64_t channel = 0; channel < shape.channels; ++channel)
      for (int64_t ky = 0; ky < shape.kernel_height; ++ky) {
        const float* from = map + channel * strides.channel + ky * strides.row;
        for (int64_t kx = 0; kx < shape.kernel_width; ++kx) *to++ = from[kx * pixel];
      }
}

}  // namespace

bool has_short_rows(const ConvolutionShape& shape) {
  return shape.channels * shape.kernel_width < kShortRow;
}

ConvolutionShape unfolded(const ConvolutionShape& shape) {
  return {.batch = shape.batch,
          .height = 1,
          .width = shape.out_height() * shape.out_width(),
          .channels = shape.channels * shape.taps(),
          .filters = shape.filters,
          .kernel_height = 1,
          .kernel_width = 1};
}

void unfold_windows(const ConvolutionShape& shape, const MapStrides& strides, const float* map,
                    float* windows) {
  const int64_t rows = shape.out_height();
  const int64_t row_floats = shape.out_width() * shape.channels * shape.taps();
  const int64_t grain = std::max<int64_t>(1, kUnfoldGrain / row_floats);
  parallel_for(0, shape.batch * rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from =
          map + row / rows * strides.image + row % rows * shape.stride_y * strides.row;
      if (strides.pixel == 1)
        unfold_row(shape, strides, std::integral_constant<int64_t, 1>(), from,
                   windows + row * row_floats);
      else
        unfold_row(shape, strides, strides.pixel, from, windows + row * row_floats);
    }
  });
}

Panels::Panels(const ConvolutionShape& shape, const float* weight, bool columns_are_filters)
    : width_(tile_width()),
      depth_(columns_are_filters ? shape.channels : shape.filters),
      blocks_((columns_are_filters ? shape.filters : shape.channels) / width_),
      kernel_width_(shape.kernel_width),
      panels_(shape.filters * shape.channels * shape.taps()) {
  const int64_t taps = shape.taps();
  const int64_t column_stride = columns_are_filters ? shape.channels * taps : taps;
  const int64_t depth_stride = columns_are_filters ? taps : shape.channels * taps;
  parallel_for(0, blocks_ * depth_, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> turned(taps * width_);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task / depth_, m = task % depth_;
      const float* from = weight + block * width_ * column_stride + m * depth_stride;
      for (int64_t x = 0; x < width_; ++x)
        for (int64_t tap = 0; tap < taps; ++tap)
          turned[tap * width_ + x] = from[x * column_stride + tap];
      for (int64_t tap = 0; tap < taps; ++tap)
        std::copy_n(
            &turned[tap * width_], width_,
            panels_.get() + offset(tap / kernel_width_, block, tap % kernel_width_) + m * width_);
    }
  });
}

Panels filter_panels(const ConvolutionShape& shape, const float* weight) {
  return {has_short_rows(shape) ? unfolded(shape) : shape, weight, /*columns_are_filters=*/true};
}

void convolution(const ConvolutionShape& shape, const float* map, const Panels& panels,
                 const float* bias, float* out) {
  const int64_t width = tile_width(), rows = shape.out_height(), columns = shape.out_width();
  for_images_of_blocks(
      shape.batch, panels.blocks(), [&](int64_t first, int64_t last, int64_t block) {
        for (int64_t pixel = first * rows * columns; pixel < last * rows * columns; ++pixel) {
          float* to = out + pixel * shape.filters + block * width;
          if (bias != nullptr)
            std::copy_n(bias + block * width, width, to);
          else
            std::fill_n(to, width, 0.0F);
        }
        for (int64_t ky = 0; ky < shape.kernel_height; ++ky)
          for (int64_t image = first; image < last; ++image)
            for (int64_t y = 0; y < rows; ++y) {
              const float* from = map + (image * shape.height + y * shape.stride_y + ky) *
                                            shape.width * shape.channels;
              float* to = out + (image * rows + y) * columns * shape.filters + block * width;
              for (int64_t x = 0; x < columns; x += kTileRows)
                multiply_tile({.a = from + x * shape.stride_x * shape.channels,
                               .a_row = shape.stride_x * shape.channels,
                               .b = panels.at(ky, block),
                               .b_row = width,
                               .depth = shape.kernel_width * shape.channels,
                               .c = to + x * shape.filters,
                               .c_row = shape.filters,
                               .rows = std::min(kTileRows, columns - x),
                               .add = true});
            }
      });
}

void convolution_map_gradient(const ConvolutionShape& shape, const float* weight,
                              const float* grad_out, float* grad_map) {
  const Panels panels(shape, weight, /*columns_are_filters=*/false);
  const int64_t width = tile_width(), rows = shape.out_height(), columns = shape.out_width();
  const int64_t pixels = shape.height * shape.width;
  for_images_of_blocks(
      shape.batch, panels.blocks(), [&](int64_t first, int64_t last, int64_t block) {
        for (int64_t pixel = first * pixels; pixel < last * pixels; ++pixel)
          std::fill_n(grad_map + pixel * shape.channels + block * width, width, 0.0F);
        for (int64_t ky = 0; ky < shape.kernel_height; ++ky)
          for (int64_t image = first; image < last; ++image)
            for (int64_t y = 0; y < rows; ++y) {
              const float* from = grad_out + (image * rows + y) * columns * shape.filters;
              float* to =
                  grad_map +
                  (image * shape.height + y * shape.stride_y + ky) * shape.width * shape.channels +
                  block * width;
              for (int64_t kx = 0; kx < shape.kernel_width; ++kx)
                for (int64_t x = 0; x < columns; x += kTileRows)
                  multiply_tile({.a = from + x * shape.filters,
                                 .a_row = shape.filters,
                                 .b = panels.at(ky, block, kx),
                                 .b_row = width,
                                 .depth = shape.filters,
                                 .c = to + (x * shape.stride_x + kx) * shape.channels,
                                 .c_row = shape.stride_x * shape.channels,
                                 .rows = std::min(kTileRows, columns - x),
                                 .add = true});
            }
      });
}

void convolution_weight_gradient(const ConvolutionShape& shape, const float* map,
                                 const float* grad_out, float* grad_weight) {
  const int64_t width = tile_width(), taps = shape.taps(), blocks = shape.filters / width;
  const int64_t pixels = shape.places();
  // A task is one tap. If there is only one tap, and its pixels are the map itself, a task is one
  // block of filters.
  const bool is_product = taps == 1 && shape.stride_y == 1 && shape.stride_x == 1;
  const int64_t tasks_of_tap = is_product ? blocks : 1;
  const Buffer turned(taps * shape.channels * shape.filters);  // [taps, C, F]
  TaskQueue queue(taps * tasks_of_tap);
  on_every_thread([&] {
    Buffer gathered;
    if (!is_product) gathered = Buffer(pixels * shape.channels);
    while (const auto next = queue.next()) {
      const int64_t task = *next;
      const int64_t tap = task / tasks_of_tap;
      if (!is_product) gather_pixels(shape, map, tap, gathered.get());
      const float* seen = is_product ? map : gathered.get();
      const int64_t first = is_product ? task : 0, last = is_product ? task + 1 : blocks;
      for (int64_t pixel = 0; pixel < pixels; pixel += kDepth)
        for (int64_t block = first; block < last; ++block)
          for (int64_t channel = 0; channel < shape.channels; channel += kTileRows)
            multiply_tile({.a = seen + pixel * shape.channels + channel,
                           .a_row = 1,
                           .a_step = shape.channels,
                           .b = grad_out + pixel * shape.filters + block * width,
                           .b_row = shape.filters,
                           .depth = std::min(kDepth, pixels - pixel),
                           .c = turned.get() + (tap * shape.channels + channel) * shape.filters +
                                block * width,
                           .c_row = shape.filters,
                           .rows = std::min(kTileRows, shape.channels - channel),
                           .add = pixel > 0});
    }
  });
  parallel_for(0, blocks * shape.channels, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(width * taps);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task / shape.channels, channel = task % shape.channels;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const float* from =
            turned.get() + (tap * shape.channels + channel) * shape.filters + block * width;
        for (int64_t x = 0; x < width; ++x) buffer[x * taps + tap] = from[x];
      }
      for (int64_t x = 0; x < width; ++x)
        std::copy_n(&buffer[x * taps], taps,
                    grad_weight + ((block * width + x) * shape.channels + channel) * taps);
    }
  });
}

}  // namespace remcaps::kernels::cpu
