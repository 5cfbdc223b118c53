// Cheap operations on maps of any layout, on the CPU: norms, ReLU, sums, pooling.
#pragma once

#include <cstdint>

#include "remcaps/kernels/convolution/shape.h"
#include "remcaps/kernels/formulas.h"

namespace remcaps::kernels::cpu {

/// A map [B, C, H, W] in memory that somebody else owns.
struct MapView {
  float* values = nullptr;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  MapStrides strides;

  float* at(int64_t image, int64_t channel, int64_t row, int64_t pixel) const {
    return values + image * strides.image + channel * strides.channel + row * strides.row +
           pixel * strides.pixel;
  }
};

/// x <- scale[c] x + shift[c]: a batch norm whose statistics are known.
void scale_and_shift(const MapView& map, const float* scale, const float* shift);

/// Each channel of each image gets mean 0 and variance 1, then scale[c] x + shift[c].
void instance_norm(const MapView& map, const float* scale, const float* shift, float epsilon);

/// x <- x if x > 0, else slope x.
void leaky_relu(const MapView& map, float slope);

/// to <- to + from. The layouts may differ.
void add_map(const MapView& from, const MapView& to);

/// Copies a map into one of another layout. Where `to` is larger, `from` is in its middle and the
/// rest becomes 0.
void copy_map(const MapView& from, const MapView& to);

/// The largest value of each kernel x kernel window. Places outside the map do not count.
void max_pool(const MapView& from, int64_t kernel, int64_t stride, int64_t padding,
              const MapView& to);

/// Squashes `count` capsules of `dim` numbers that lie one after the other.
void squash_capsules(SquashForm form, float epsilon, int64_t count, int64_t dim, float* capsules);

}  // namespace remcaps::kernels::cpu
