// Perceptually uniform colour maps: one for maps of images, one for activations and couplings.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

namespace remcaps {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

/// "#b63679"
std::string to_hex(Colour colour);

/// The colour of a value in 0..1 (clamped; NaN counts as 0), dark violet over red to pale yellow.
/// Lightness grows in proportion to the value, in the OKLab space, where equal distances look
/// equally far.
Colour map_colour(double value);

/// The colour of an activation or a coupling in 0..1, as in the HTML report (web/src/colour.ts):
/// viridis, and the larger the value, the more it stands out from the page. The scale goes by the
/// square root, since most couplings are small.
Colour strength_colour(double value, bool dark_page);

/// Values in 0..1, any shape -> uint8 with a last dimension of 3.
torch::Tensor map_colours(const torch::Tensor& values);

}  // namespace remcaps
