#include "remcaps/ops/update.h"

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/kernels/update/update.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using torch::Tensor;

// Dense tensors with the same strides hold their elements in the same order. The stride of a
// dimension of size 1 does not matter.
bool goes_with(const Tensor& tensor, const Tensor& parameter, torch::ScalarType type) {
  if (tensor.scalar_type() != type || tensor.device() != parameter.device() ||
      tensor.sizes() != parameter.sizes())
    return false;
  for (int64_t d = 0; d < parameter.dim(); ++d)
    if (parameter.size(d) > 1 && tensor.stride(d) != parameter.stride(d)) return false;
  return true;
}

kernels::UpdateArrays arrays_of(const UpdatedParameter& item) {
  const Tensor& parameter = item.parameter;
  check(parameter.scalar_type() == torch::kFloat32 && parameter.is_non_overlapping_and_dense() &&
            goes_with(item.gradient, parameter, torch::kFloat32) &&
            goes_with(item.first, parameter, torch::kFloat32) &&
            goes_with(item.second, parameter, torch::kFloat32) &&
            (!item.dead.defined() || goes_with(item.dead, parameter, torch::kBool)),
        "fused update: a parameter of {} elements, its gradient, moments and mask differ in type, "
        "device or layout",
        parameter.numel());
  return {.parameter = parameter.data_ptr<float>(),
          .gradient = item.gradient.data_ptr<float>(),
          .first = item.first.data_ptr<float>(),
          .second = item.second.data_ptr<float>(),
          .dead = item.dead.defined() ? reinterpret_cast<const uint8_t*>(item.dead.data_ptr<bool>())
                                      : nullptr,
          .count = parameter.numel(),
          .shrink = item.shrink};
}

}  // namespace

Tensor step_numbers(double lr, const UpdateConstants& constants, int64_t step, double lambda,
                    const torch::Device& device) {
  return step_numbers(lr, constants, step, /*count=*/1, lambda, device).view({3});
}

Tensor step_numbers(double lr, const UpdateConstants& constants, int64_t first, int64_t count,
                    double lambda, const torch::Device& device) {
  std::vector<float> numbers;
  for (int64_t step = first; step < first + count; ++step) {
    const auto t = static_cast<double>(step);
    numbers.push_back(static_cast<float>(lr / (1 - std::pow(constants.beta1, t))));
    numbers.push_back(static_cast<float>(std::sqrt(1 - std::pow(constants.beta2, t))));
    numbers.push_back(static_cast<float>(lambda));
  }
  const Tensor on_host = torch::tensor(numbers, torch::kFloat32).view({count, 3});
  // A copy from memory that is not page-locked would wait for the device.
  return device.is_cuda() ? on_host.pin_memory().to(device, /*non_blocking=*/true) : on_host;
}

void fused_update(const std::vector<UpdatedParameter>& parameters, const UpdateConstants& constants,
                  const Tensor& numbers) {
  if (parameters.empty()) return;
  std::vector<kernels::UpdateArrays> arrays;
  arrays.reserve(parameters.size());
  for (const UpdatedParameter& item : parameters) arrays.push_back(arrays_of(item));
  check(numbers.numel() == 3 && numbers.scalar_type() == torch::kFloat32 &&
            numbers.device() == parameters.front().parameter.device(),
        "fused update: {} step numbers; expected 3, float32, on the parameters' device",
        numbers.numel());
  const kernels::AdamConstants adam{.beta1 = static_cast<float>(constants.beta1),
                                    .one_minus_beta1 = static_cast<float>(1 - constants.beta1),
                                    .beta2 = static_cast<float>(constants.beta2),
                                    .one_minus_beta2 = static_cast<float>(1 - constants.beta2),
                                    .epsilon = static_cast<float>(constants.eps)};
  const auto* step = reinterpret_cast<const kernels::StepNumbers*>(numbers.data_ptr<float>());
#ifdef REMCAPS_CUDA
  if (numbers.is_cuda()) {
    const kernels::cuda::DeviceScope scope(numbers);
    return kernels::cuda::update(arrays, adam, step, scope.stream());
  }
#endif
  check(numbers.is_cpu(), "fused update: no kernel for {}", numbers.device().str());
  kernels::cpu::update(arrays, adam, *step);
}

}  // namespace remcaps
