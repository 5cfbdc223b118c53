#include "remcaps/explain/colour_map.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

namespace remcaps {

namespace {

constexpr int kEntries = 256;

// Lightness is linear between these two; chroma and hue follow the control points below.
constexpr double kDarkest = 0.16, kLightest = 0.97;
struct Control {
  double chroma, hue;  // hue in degrees
};
constexpr std::array<Control, 6> kControls = {
    {{0.050, 282}, {0.150, 298}, {0.200, 335}, {0.210, 378}, {0.160, 418}, {0.090, 462}}};

// A smooth curve through equally spaced points (Catmull-Rom, the ends continued straight).
double smooth(double Control::*member, double t) {
  constexpr int last = static_cast<int>(kControls.size()) - 1;
  const double place = t * last;
  const int k = std::min(static_cast<int>(place), last - 1);
  const double x = place - k;
  const auto at = [&](int i) {
    if (i < 0) return 2 * kControls[0].*member - kControls[1].*member;
    if (i > last) return 2 * kControls[last].*member - kControls[last - 1].*member;
    return kControls[static_cast<size_t>(i)].*member;
  };
  const double a = at(k - 1), b = at(k), c = at(k + 1), d = at(k + 2);
  return b + 0.5 * x * (c - a + x * (2 * a - 5 * b + 4 * c - d + x * (3 * (b - c) + d - a)));
}

// Björn Ottosson's OKLab -> linear sRGB.
std::array<double, 3> linear_rgb(double light, double a, double b) {
  const double l = std::pow(light + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(light - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(light - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

double to_gamma(double x) {
  return x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055;
}

// A colour too vivid for the screen loses chroma, never lightness.
Colour make_colour(double t) {
  const double light = kDarkest + t * (kLightest - kDarkest);
  const double hue = smooth(&Control::hue, t) * std::numbers::pi / 180;
  std::array<double, 3> rgb{};
  for (double chroma = smooth(&Control::chroma, t); chroma > 0; chroma -= 0.002) {
    rgb = linear_rgb(light, chroma * std::cos(hue), chroma * std::sin(hue));
    if (std::all_of(rgb.begin(), rgb.end(), [](double x) { return x >= 0 && x <= 1; })) break;
  }
  const auto byte = [](double x) {
    return static_cast<uint8_t>(std::lround(255 * to_gamma(std::clamp(x, 0.0, 1.0))));
  };
  return {byte(rgb[0]), byte(rgb[1]), byte(rgb[2])};
}

const std::array<Colour, kEntries>& table() {
  static const std::array<Colour, kEntries> colours = [] {
    std::array<Colour, kEntries> made;
    for (int i = 0; i < kEntries; ++i)
      made[static_cast<size_t>(i)] = make_colour(static_cast<double>(i) / (kEntries - 1));
    return made;
  }();
  return colours;
}

}  // namespace

std::string to_hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

Colour map_colour(double value) {
  const double clamped = value > 0 ? std::min(value, 1.0) : 0.0;  // NaN is not > 0
  return table()[static_cast<size_t>(std::lround(clamped * (kEntries - 1)))];
}

Colour strength_colour(double value, bool dark_page) {
  // Viridis as polynomials of the place, one for each of red, green and blue: least squares over
  // the report's table of it, at most 4.2 of 255 off.
  static constexpr std::array<std::array<double, 7>, 3> kViridis = {
      {{0.2674, 0.2398, -1.0528, -3.0921, 5.0685, 4.7970, -5.2362},
       {0.0041, 1.4392, -0.0497, -4.9441, 12.9085, -12.8328, 4.3808},
       {0.3299, 1.4261, 0.1405, -20.7371, 61.3172, -71.0277, 28.6954}}};
  const double root = std::sqrt(value > 0 ? std::min(value, 1.0) : 0.0);  // NaN is not > 0
  const double place = dark_page ? root : 1 - root;
  const auto byte = [place](const std::array<double, 7>& factors) {
    double sum = 0;
    for (size_t n = factors.size(); n-- > 0;) sum = sum * place + factors[n];
    return static_cast<uint8_t>(std::lround(255 * std::clamp(sum, 0.0, 1.0)));
  };
  return {byte(kViridis[0]), byte(kViridis[1]), byte(kViridis[2])};
}

torch::Tensor map_colours(const torch::Tensor& values) {
  static const torch::Tensor colours = [] {
    torch::Tensor made = torch::empty({kEntries, 3}, torch::kByte);
    uint8_t* byte = made.data_ptr<uint8_t>();
    for (const Colour colour : table())
      for (const uint8_t part : {colour.red, colour.green, colour.blue}) *byte++ = part;
    return made;
  }();
  const torch::Tensor index =
      (values.detach().to(torch::kCPU, torch::kFloat).nan_to_num(0).clamp(0, 1) * (kEntries - 1))
          .round()
          .to(torch::kLong);
  std::vector<int64_t> shape = index.sizes().vec();
  shape.push_back(3);
  return colours.index_select(0, index.flatten()).view(shape);
}

}  // namespace remcaps
