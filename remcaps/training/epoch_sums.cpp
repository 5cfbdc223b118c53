#include "remcaps/training/epoch_sums.h"

#include "remcaps/ops/batch.h"

namespace remcaps {

EpochSums EpochSums::zeros(torch::Device device) {
  const auto options = torch::TensorOptions().device(device);
  EpochSums sums;
  sums.loss = torch::zeros({}, options.dtype(torch::kFloat64));
  sums.correct = torch::zeros({}, options.dtype(torch::kInt64));
  sums.bad_step = torch::full({}, kNoBadStep, options.dtype(torch::kInt64));
  return sums;
}

void EpochSums::add(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                    const torch::Tensor& labels, int64_t position) {
  add_on_device(batch_loss, activations, labels, torch::full({1}, position, bad_step.options()));
  images += labels.size(0);
}

void EpochSums::add_on_device(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                              const torch::Tensor& labels, const torch::Tensor& position) {
  torch::NoGradGuard no_grad;
  if (has_fused_sums(batch_loss, activations))
    return add_to_fused_sums(batch_loss, activations, labels, position, loss, correct, bad_step);
  add_totals(totals(batch_loss, activations, labels, 1), labels.size(0), position);
}

torch::Tensor EpochSums::totals(const torch::Tensor& batch_loss, const torch::Tensor& activations,
                                const torch::Tensor& labels, double weight) {
  if (weight == 1 && has_fused_sums(batch_loss, activations))
    return fused_totals(batch_loss, activations, labels);
  const torch::Tensor right = (activations.argmax(1) == labels).sum() * weight;
  return torch::stack({batch_loss, right.to(batch_loss.scalar_type())});
}

void EpochSums::add_totals(const torch::Tensor& totals, int64_t count,
                           const torch::Tensor& position) {
  torch::NoGradGuard no_grad;
  if (has_fused_totals(totals))
    return add_fused_totals(totals, count, position, loss, correct, bad_step);
  const torch::Tensor value = totals[0].to(torch::kFloat64);
  loss += value * count;
  correct += totals[1].round().to(torch::kInt64);
  bad_step.copy_(torch::where(torch::isfinite(value), bad_step,
                              torch::minimum(bad_step, position.squeeze(0))));
}

}  // namespace remcaps
