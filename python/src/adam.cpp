// Adam's step as one pass over the parameters.
#include <torch/csrc/autograd/variable.h>

#include "python/src/bindings.h"
#include "remcaps/ops/update.h"

namespace remcaps::python {
namespace {

// Parameters on one device, before their step number `step`.
void adam_step(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
               const std::vector<Tensor>& first, const std::vector<Tensor>& second, double lr,
               double beta1, double beta2, double eps, int64_t step) {
  const torch::NoGradGuard no_grad;
  const UpdateConstants constants{.beta1 = beta1, .beta2 = beta2, .eps = eps};
  std::vector<UpdatedParameter> updated;
  for (size_t i = 0; i < parameters.size(); ++i)
    updated.push_back({.parameter = parameters.at(i),
                       .gradient = gradients.at(i).contiguous(),
                       .first = first.at(i),
                       .second = second.at(i),
                       .dead = {}});
  fused_update(updated, constants,
               step_numbers(lr, constants, step, /*lambda=*/0, parameters.at(0).device()));
  // Autograd notices a weight that changes between forward and backward pass.
  for (const Tensor& parameter : parameters) torch::autograd::impl::bump_version(parameter);
}

}  // namespace

void bind_adam(py::module_& module) {
  module.def("adam_step", &adam_step, WithoutGil());
}

}  // namespace remcaps::python
