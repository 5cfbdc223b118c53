#include "remcaps/capsule/init.h"

#include <cmath>

namespace remcaps {

void he_normal_(torch::Tensor tensor, int64_t fan_in) {
  const torch::NoGradGuard no_grad;
  // For a standard normal distribution that is cut at ±2: its standard deviation, and the
  // probability between the cuts, erf(2 / sqrt 2).
  const double kept_deviation = 0.87962566103423978, kept_probability = 0.95449973610364158;
  const double deviation = std::sqrt(2.0 / static_cast<double>(fan_in)) / kept_deviation;
  tensor.uniform_(-kept_probability, kept_probability);
  tensor.copy_(torch::erfinv(tensor) * (deviation * std::sqrt(2.0)));
}

void glorot_uniform_(torch::Tensor tensor, int64_t fan_in, int64_t fan_out) {
  const torch::NoGradGuard no_grad;
  const double limit = std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  tensor.uniform_(-limit, limit);
}

}  // namespace remcaps
