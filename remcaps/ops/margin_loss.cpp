#include "remcaps/ops/margin_loss.h"

#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "remcaps/kernels/pointwise/pointwise.h"
#include "remcaps/ops/once_differentiable.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class MarginLoss : public torch::autograd::Function<MarginLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& activations, const Tensor& labels,
                        const kernels::Margins& margins) {
    const auto options = activations.options().requires_grad(false);
    Tensor loss = torch::empty({}, options);
    const Tensor gradient = torch::empty(activations.sizes(), options);
    context->save_for_backward({gradient});
    const int64_t batch = activations.size(0), classes = activations.size(1);
#ifdef REMCAPS_CUDA
    if (activations.is_cuda()) {
      const kernels::cuda::DeviceScope scope(activations);
      kernels::cuda::margin_loss(batch, classes, activations.data_ptr<float>(),
                                 labels.data_ptr<int64_t>(), margins, loss.data_ptr<float>(),
                                 gradient.data_ptr<float>(), scope.stream());
      return loss;
    }
#endif
    kernels::cpu::margin_loss(batch, classes, activations.data_ptr<float>(),
                              labels.data_ptr<int64_t>(), margins, loss.data_ptr<float>(),
                              gradient.data_ptr<float>());
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("margin loss");
    return {context->get_saved_variables()[0] * grad_outputs[0], Tensor(), Tensor()};
  }
};

bool has_margin_kernel(const Tensor& activations, const Tensor& labels) {
#ifdef REMCAPS_CUDA
  const bool has_device = activations.is_cpu() || activations.is_cuda();
#else
  const bool has_device = activations.is_cpu();
#endif
  return has_device && activations.scalar_type() == torch::kFloat32 &&
         labels.scalar_type() == torch::kInt64 && labels.device() == activations.device();
}

void check_shapes(const Tensor& activations, const Tensor& labels) {
  check(activations.dim() == 2 && labels.dim() == 1 && labels.size(0) == activations.size(0),
        "margin loss: activations {} and labels {}; expected [B, classes] and [B]",
        fmt::join(activations.sizes(), "x"), fmt::join(labels.sizes(), "x"));
}

}  // namespace

Tensor margin_losses(const Tensor& activations, const Tensor& labels,
                     const MarginOptions& options) {
  check_shapes(activations, labels);
  constexpr double kLeast = 1e-30;  // a probability of 0 would have no logarithm
  if (options.cross_entropy)
    return -activations.gather(1, labels.unsqueeze(1)).squeeze(1).clamp_min(kLeast).log();
  const Tensor present = torch::relu(options.m_plus - activations).square();  // [B, J]
  const Tensor absent = torch::relu(activations - options.m_minus).square();  // [B, J]
  // T_k as a comparison: one_hot would read the labels back from the device.
  const Tensor is_true =
      labels.unsqueeze(1) == torch::arange(activations.size(1), labels.options());
  return torch::where(is_true, present, options.lambda * absent).sum(1);
}

Tensor margin_loss(const Tensor& activations, const Tensor& labels, const MarginOptions& options,
                   KernelPath kernels) {
  if (kernels == KernelPath::kFused && !options.cross_entropy && activations.is_cuda() &&
      has_margin_kernel(activations, labels))
    return fused_margin_loss(activations, labels, options);
  return margin_losses(activations, labels, options).mean();
}

Tensor fused_margin_loss(const Tensor& activations, const Tensor& labels,
                         const MarginOptions& options) {
  check_shapes(activations, labels);
  check(!options.cross_entropy, "fused margin loss: it computes no cross entropy");
  check(has_margin_kernel(activations, labels),
        "fused margin loss: activations of {} on {} and labels of {} on {}; expected float32 and "
        "int64 on one device",
        c10::toString(activations.scalar_type()), activations.device().str(),
        c10::toString(labels.scalar_type()), labels.device().str());
  return MarginLoss::apply(activations.contiguous(), labels.contiguous(),
                           kernels::Margins{.plus = static_cast<float>(options.m_plus),
                                            .minus = static_cast<float>(options.m_minus),
                                            .lambda = static_cast<float>(options.lambda)});
}

}  // namespace remcaps
