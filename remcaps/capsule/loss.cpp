#include "remcaps/capsule/loss.h"

#include "remcaps/base/error.h"

namespace remcaps {

bool finds_all_classes(double loss, int64_t classes, const MarginOptions& options) {
  const double excess = 1 - options.m_minus;
  const double highest = options.lambda * static_cast<double>(classes - 1) * excess * excess;
  return !options.cross_entropy && classes > 1 && loss > 0.9 * highest;
}

Tensor reconstruction_loss(const Tensor& reconstruction, const Tensor& images) {
  check(reconstruction.numel() == images.numel(),
        "reconstruction loss: reconstruction {} and images {} differ in size",
        fmt::join(reconstruction.sizes(), "x"), fmt::join(images.sizes(), "x"));
  return (reconstruction.reshape_as(images) - images).square().sum() / images.size(0);
}

}  // namespace remcaps
