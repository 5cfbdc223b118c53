#include "remcaps/capsule/loss.h"

#include "remcaps/base/error.h"
#include "remcaps/ops/pointwise.h"

namespace remcaps {

Tensor margin_losses(const Tensor& activations, const Tensor& labels,
                     const MarginOptions& options) {
  check(activations.dim() == 2 && labels.dim() == 1 && labels.size(0) == activations.size(0),
        "margin loss: activations {} and labels {}; expected [B, classes] and [B]",
        fmt::join(activations.sizes(), "x"), fmt::join(labels.sizes(), "x"));
  const Tensor present = torch::relu(options.m_plus - activations).square();  // [B, J]
  const Tensor absent = torch::relu(activations - options.m_minus).square();  // [B, J]
  // T_k as a comparison and not as one_hot, which would read the labels back from the device.
  const Tensor is_true =
      labels.unsqueeze(1) == torch::arange(activations.size(1), labels.options());
  return torch::where(is_true, present, options.lambda * absent).sum(1);
}

Tensor margin_loss(const Tensor& activations, const Tensor& labels, const MarginOptions& options) {
  return margin_losses(activations, labels, options).mean();
}

Tensor margin_loss(const Tensor& activations, const Tensor& labels, const MarginOptions& options,
                   KernelPath kernels) {
  if (kernels == KernelPath::kFused && activations.is_cuda() &&
      has_fused_margin_loss(activations, labels))
    return fused_margin_loss(activations, labels, options.m_plus, options.m_minus, options.lambda);
  return margin_loss(activations, labels, options);
}

bool finds_all_classes(double loss, int64_t classes, const MarginOptions& options) {
  const double excess = 1 - options.m_minus;
  const double highest = options.lambda * static_cast<double>(classes - 1) * excess * excess;
  return classes > 1 && loss > 0.9 * highest;
}

Tensor reconstruction_loss(const Tensor& reconstruction, const Tensor& images) {
  check(reconstruction.numel() == images.numel(),
        "reconstruction loss: reconstruction {} and images {} differ in size",
        fmt::join(reconstruction.sizes(), "x"), fmt::join(images.sizes(), "x"));
  return (reconstruction.reshape_as(images) - images).square().sum() / images.size(0);
}

}  // namespace remcaps
