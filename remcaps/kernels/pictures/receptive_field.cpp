#include "remcaps/kernels/pictures/receptive_field.h"

#include <algorithm>
#include <cmath>

namespace remcaps::kernels {

std::vector<double> field_weights(const ReceptiveField::Axis& field, int64_t places,
                                  int64_t pixels) {
  const double deviation = field.size / 4;
  std::vector<double> weights(static_cast<size_t>(places * pixels));
  for (int64_t place = 0; place < places; ++place) {
    const double centre = field.first + static_cast<double>(place) * field.step;
    const auto away = [&](int64_t pixel) { return std::abs(static_cast<double>(pixel) - centre); };
    // A capsule that sees nothing but padding gets the pixel next to it.
    double nearest = away(0);
    for (int64_t pixel = 1; pixel < pixels; ++pixel) nearest = std::min(nearest, away(pixel));
    const double reach = std::max((field.size - 1) / 2, nearest);
    double* row = weights.data() + place * pixels;
    double sum = 0;
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      const double x = away(pixel) / deviation, least = nearest / deviation;
      row[pixel] = away(pixel) <= reach ? std::exp((least * least - x * x) / 2) : 0;
      sum += row[pixel];
    }
    for (int64_t pixel = 0; pixel < pixels; ++pixel) row[pixel] /= sum;
  }
  return weights;
}

}  // namespace remcaps::kernels
