#include "remcaps/capsule/quantizer.h"

#include <cmath>
#include <limits>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

// Level indices are kept as bytes by whoever stores them.
constexpr int64_t kMaxLevels = 256;

// numpy.linspace(low, high, count), rounding included: whether a coupling of exactly 0.1 lies above
// or below an edge at 0.1 depends on it.
std::vector<double> linspace(double low, double high, int64_t count) {
  const double step = (high - low) / static_cast<double>(count - 1);
  std::vector<double> values(count);
  for (int64_t k = 0; k < count; ++k) {
    const volatile double product = static_cast<double>(k) * step;  // not fused with the addition
    values[k] = product + low;
  }
  values.back() = high;
  return values;
}

enum class Closed { kRight, kLeft };

// The K - 1 edges between two levels as a tensor on the couplings' device. A float c is compared
// with a double edge e without converting c: c <= e exactly when c <= the largest float that is <=
// e, and e <= c exactly when the smallest float that is >= e is <= c.
torch::Tensor inner_edges(const std::vector<double>& edges, const torch::Tensor& like,
                          Closed closed) {
  const std::vector<double> inner(edges.begin() + 1, edges.end() - 1);
  if (like.scalar_type() == torch::kDouble)
    return torch::tensor(inner, torch::kDouble).to(like.device());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> rounded;
  rounded.reserve(inner.size());
  for (const double edge : inner) {
    float value = static_cast<float>(edge);
    if (closed == Closed::kRight && value > edge) value = std::nextafter(value, -kInfinity);
    if (closed == Closed::kLeft && value < edge) value = std::nextafter(value, kInfinity);
    rounded.push_back(value);
  }
  return torch::tensor(rounded, torch::kFloat).to(like.device());
}

torch::Tensor level_indices(const std::vector<double>& edges, const torch::Tensor& coupling,
                            Closed closed) {
  torch::Tensor values = coupling.detach();
  if (values.scalar_type() != torch::kDouble) values = values.to(torch::kFloat);
  return torch::bucketize(values.contiguous(), inner_edges(edges, values, closed),
                          /*out_int32=*/false, /*right=*/closed == Closed::kLeft);
}

}  // namespace

Quantizer::Quantizer(std::vector<double> edges) : edges_(std::move(edges)) {
  for (size_t k = 0; k + 1 < edges_.size(); ++k)
    centres_.push_back(static_cast<float>((edges_[k] + edges_[k + 1]) / 2));
}

Quantizer Quantizer::uniform(int64_t levels) {
  check(levels >= 2 && levels <= kMaxLevels, "quantizer: {} levels; expected 2 to {}", levels,
        kMaxLevels);
  const double half = 0.5 / static_cast<double>(levels - 1);
  return Quantizer(linspace(-half, 1 + half, levels + 1));
}

Quantizer Quantizer::bins(int64_t levels) {
  check(levels >= 2 && levels <= kMaxLevels, "quantizer: {} bins; expected 2 to {}", levels,
        kMaxLevels);
  return Quantizer(linspace(0, 1, levels + 1));
}

torch::Tensor Quantizer::indices(const torch::Tensor& coupling) const {
  return level_indices(edges_, coupling, Closed::kRight);
}

torch::Tensor Quantizer::quantize(const torch::Tensor& coupling) const {
  const auto type = coupling.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const torch::Tensor values = torch::tensor(centres_).to(coupling.device(), type);
  return values.take(indices(coupling));
}

torch::Tensor Quantizer::dictionary_indices(const torch::Tensor& coupling) const {
  return level_indices(edges_, coupling, Closed::kLeft);
}

}  // namespace remcaps
