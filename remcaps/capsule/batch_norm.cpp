#include "remcaps/capsule/batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "remcaps/capsule/divided_batch.h"

namespace remcaps {
namespace {

using torch::Tensor;

// [C] -> [1, C, 1, 1]
Tensor of_channels(const Tensor& values, const Tensor& maps) {
  return values.to(maps.scalar_type()).view({1, -1, 1, 1});
}

// Statistics of the whole batch: images and places, mean and biased variance, [C] float64.
struct Statistics {
  double count = 0;
  Tensor mean, variance;
};

Statistics whole_statistics(const Tensor& maps, ProcessGroup& group) {
  const int64_t channels = maps.size(1), places = maps.size(2) * maps.size(3);
  const auto count = static_cast<double>(maps.size(0) * places);
  auto [variance, mean] = at::var_mean(maps, {0, 2, 3}, /*unbiased=*/false);
  mean = mean.to(torch::kFloat64);
  // [2C]: sums, sums of squares
  const Tensor sums = torch::cat({mean * count, (variance + mean.square()) * count});
  group.all_reduce_sum(sums);
  Statistics whole;
  whole.count = static_cast<double>(DividedBatch::images() * places);
  whole.mean = sums.narrow(0, 0, channels) / whole.count;
  whole.variance =
      (sums.narrow(0, channels, channels) / whole.count - whole.mean.square()).clamp_min(0);
  return whole;
}

// y = (x - mean) / sqrt(variance + epsilon) for the whole batch's mean and variance.
class NormalizeDivided : public torch::autograd::Function<NormalizeDivided> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& maps,
                        const Tensor& mean, const Tensor& variance, double count, double epsilon,
                        int64_t group) {
    const Tensor scale = (variance + epsilon).rsqrt();
    const Tensor normal = (maps - of_channels(mean, maps)) * of_channels(scale, maps);
    context->save_for_backward({normal, scale});
    context->saved_data["count"] = count;
    context->saved_data["group"] = group;
    return normal;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &normal = saved[0], &scale = saved[1], &gradient = gradients[0];
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    const int64_t channels = normal.size(1);
    const Tensor sums = torch::cat({gradient.sum({0, 2, 3}).to(torch::kFloat64),
                                    (gradient * normal).sum({0, 2, 3}).to(torch::kFloat64)});
    group->all_reduce_sum(sums);
    const Tensor means = sums / context->saved_data["count"].toDouble();
    const Tensor mean = of_channels(means.narrow(0, 0, channels), normal);
    const Tensor projection = of_channels(means.narrow(0, channels, channels), normal);
    return {(gradient - mean - normal * projection) * of_channels(scale, normal),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

void update_running(torch::nn::BatchNorm2dImpl& norm, const Statistics& whole) {
  const torch::NoGradGuard no_grad;
  norm.num_batches_tracked += 1;
  const double momentum = norm.options.momentum().value();
  const double unbiased = whole.count / std::max(whole.count - 1, 1.0);
  const auto blend = [&](Tensor& running, const Tensor& value) {
    running.copy_(running * (1 - momentum) + value.to(running.scalar_type()) * momentum);
  };
  blend(norm.running_mean, whole.mean);
  blend(norm.running_var, whole.variance * unbiased);
}

}  // namespace

Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const Tensor& maps) {
  ProcessGroup* group = DividedBatch::group();
  if (group == nullptr || !norm.is_training()) return norm.forward(maps);
  Statistics whole;
  {
    const torch::NoGradGuard no_grad;
    whole = whole_statistics(maps.detach().to(torch::kFloat32), *group);
  }
  update_running(norm, whole);
  const Tensor normal =
      NormalizeDivided::apply(maps.to(torch::kFloat32), whole.mean, whole.variance, whole.count,
                              norm.options.eps(), reinterpret_cast<int64_t>(group));
  return (normal * of_channels(norm.weight, normal) + of_channels(norm.bias, normal))
      .to(maps.scalar_type());
}

}  // namespace remcaps
