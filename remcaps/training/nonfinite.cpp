#include "remcaps/training/nonfinite.h"

#include <fmt/format.h>

namespace remcaps {
namespace {

bool is_finite(const Tensor& tensor) {
  return !tensor.defined() || !tensor.is_floating_point() ||
         torch::isfinite(tensor).all().item<bool>();
}

}  // namespace

std::string find_nonfinite(CapsNet& model, const Batch& batch,
                           const std::function<void()>& backward) {
  if (!is_finite(batch.images)) return "the batch's images";
  for (const auto& item : model.named_parameters())
    if (!is_finite(item.value())) return fmt::format("parameter {}", item.key());
  for (const auto& item : model.named_buffers())
    if (!is_finite(item.value())) return fmt::format("buffer {}", item.key());
  {
    torch::NoGradGuard no_grad;
    ForwardOptions options;
    options.trace = true;
    const Forward forward = model.forward(batch.images, options);
    for (const auto& routing : forward.routings) {
      if (!is_finite(routing.child_activations))
        return fmt::format("the capsules that enter layer {}", routing.layer);
      if (!is_finite(routing.coupling)) return fmt::format("the couplings of {}", routing.layer);
    }
    if (!is_finite(forward.poses)) return "the class capsules' poses";
  }
  backward();
  // Gradients flow from the loss to the images, so the last layer was the first to be affected.
  std::string found = "the loss itself";
  for (const auto& item : model.named_parameters())
    if (!is_finite(item.value().grad())) found = fmt::format("the gradient of {}", item.key());
  return found;
}

}  // namespace remcaps
