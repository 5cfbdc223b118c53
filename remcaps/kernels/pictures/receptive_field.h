// Which pixels of a picture a place of a map sees, and how a value of that place is spread over
// them.
#pragma once

#include <cstdint>
#include <vector>

namespace remcaps::kernels {

/// The pixels of a network's input that each place of a map sees. Along one axis, place n of the
/// map sees `size` pixels around the centre `first + n * step`; pixels are counted from 0, at their
/// middle. The zeros of a padding count as pixels outside the image.
struct ReceptiveField {
  struct Axis {
    double first = 0, step = 1, size = 1;

    /// The field of a map that a window slides over this one makes.
    Axis under(int64_t kernel, int64_t stride, int64_t padding) const {
      const double shift = static_cast<double>(kernel - 1) / 2 - static_cast<double>(padding);
      return {first + shift * step, step * static_cast<double>(stride),
              size + static_cast<double>(kernel - 1) * step};
    }
  };
  Axis y, x;
};

/// How much of a value each pixel of one axis gets, [places, pixels]: a Gaussian with a quarter of
/// the field's size as its deviation, cut off where the field ends. Every row adds up to 1.
std::vector<double> field_weights(const ReceptiveField::Axis& field, int64_t places,
                                  int64_t pixels);

}  // namespace remcaps::kernels
