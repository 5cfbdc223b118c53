// Routing, squash and the margin loss on tensors of PyTorch, with autograd.
#include <torch/csrc/jit/frontend/tracer.h>

#include "python/src/bindings.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/capsule/routing/self_attention.h"
#include "remcaps/capsule/routing/window.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/ops/margin_loss.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/torch/compat.h"

namespace remcaps::python {
namespace {

using Levels = std::optional<int64_t>;
using Routed = std::pair<Tensor, Tensor>;  // poses and, if asked for, couplings

// torch.jit.trace() and torch.onnx.export() see plain tensor code only.
KernelPath kernel_path(const std::string& kernels) {
  const auto path = choice<KernelPath>("kernels", kernels, {"fused", "reference"});
  return torch::jit::tracer::isTracing() ? KernelPath::kReference : path;
}

// On a GPU a check of the values would wait for them.
void check_labels(const Tensor& labels, int64_t classes) {
  check(!labels.is_floating_point() && !labels.is_complex(),
        "margin loss: labels are {}; expected the numbers of classes",
        c10::toString(labels.scalar_type()));
  if (!labels.is_cpu() || labels.numel() == 0) return;
  const auto outside = [&](int64_t label) { return label < 0 || label >= classes; };
  for (const Tensor& extreme : {labels.min(), labels.max()})
    check(!outside(extreme.item<int64_t>()), "margin loss: label {}; expected 0 to {}",
          extreme.item<int64_t>(), classes - 1);
}

RoutingRequest request(const Levels& levels, bool trace) {
  RoutingRequest request{.coupling = trace};
  if (levels) request.quantizer = quantizer_of(*levels);
  return request;
}

template <typename Options>
Options iterated(int64_t iterations, const std::string& gradient, const std::string& bias_in,
                 double epsilon, const std::string& kernels) {
  if (iterations < 1)
    throw UsageError(fmt::format("iterations: {}; expected 1 or more", iterations));
  Options options;
  options.iterations = iterations;
  options.gradient = choice<RoutingGradient>("gradient", gradient, {"last", "full"});
  options.bias = choice<BiasUse>("bias_in", bias_in, {"none", "every", "last"});
  options.squash.epsilon = epsilon;
  options.kernels = kernel_path(kernels);
  return options;
}

Routed routed(const RoutingResult& result, bool trace) {
  return {result.poses, trace ? result.coupling.detach() : Tensor()};
}

Routed dynamic(const Tensor& children, const Tensor& weight, const std::optional<Tensor>& bias,
               int64_t iterations, const std::string& gradient, const std::string& bias_in,
               double epsilon, const std::string& kernels, const Levels& levels, bool trace) {
  const RoutingPtr routing =
      iterated<DynamicRouting>(iterations, gradient, bias_in, epsilon, kernels);
  return routed(routing->route(children, weight, bias.value_or(Tensor()), request(levels, trace)),
                trace);
}

Routed scaled_distance(const Tensor& children, const Tensor& weight,
                       const std::optional<Tensor>& bias, int64_t iterations,
                       const std::string& gradient, const std::string& bias_in,
                       const std::string& mean, double epsilon, const std::string& kernels,
                       const Levels& levels, bool trace) {
  auto options = iterated<ScaledDistanceRouting>(iterations, gradient, bias_in, epsilon, kernels);
  options.mean = choice<ScaledDistanceRouting::Mean>("mean", mean, {"batch", "sample"});
  const RoutingPtr routing = options;
  return routed(routing->route(children, weight, bias.value_or(Tensor()), request(levels, trace)),
                trace);
}

Routed self_attention(const Tensor& children, const Tensor& weight, const Tensor& prior,
                      const std::string& agreement, const std::string& prior_in, double epsilon,
                      const Levels& levels, bool trace) {
  SelfAttentionRouting options;
  options.agreement =
      choice<SelfAttentionRouting::Agreement>("agreement", agreement, {"all", "self"});
  options.prior = choice<SelfAttentionRouting::Prior>("prior_in", prior_in, {"rounded", "exact"});
  options.squash.epsilon = epsilon;
  const RoutingPtr routing = options;
  return routed(routing->route(children, weight, prior, request(levels, trace)), trace);
}

Routed conv_caps(const Tensor& children, const Tensor& weight, const std::optional<Tensor>& bias,
                 int64_t kernel, int64_t stride, int64_t iterations, const std::string& gradient,
                 const std::string& bias_in, double epsilon, const std::string& kernels,
                 const Levels& levels, bool trace) {
  const auto options = iterated<DynamicRouting>(iterations, gradient, bias_in, epsilon, kernels);
  return routed(conv_caps_routing(children, weight, bias.value_or(Tensor()), kernel, stride,
                                  options, request(levels, trace)),
                trace);
}

using Pair = std::array<int64_t, 2>;

// What a user of PyTorch expects of autocast and on a GPU is what torch's convolution does there.
Tensor conv2d(const Tensor& map, const Tensor& weight, const std::optional<Tensor>& bias,
              Pair stride, Pair padding, Pair dilation, int64_t groups,
              const std::string& kernels) {
  const bool is_ours = map.is_cpu() && !cpu_autocast_is_on();
  const KernelPath path = kernel_path(kernels);
  return convolution(map,
                     {.weight = weight,
                      .bias = bias.value_or(Tensor()),
                      .stride = stride,
                      .padding = padding,
                      .dilation = dilation,
                      .groups = groups},
                     is_ours ? path : KernelPath::kReference);
}

Squash squash_form(const std::string& form, double epsilon) {
  return {choice<Squash::Form>("form", form, {"norm", "exponential"}), epsilon};
}

}  // namespace

void bind_functional(py::module_& module) {
  module.def("dynamic_routing", &dynamic, WithoutGil());
  module.def("scaled_distance_routing", &scaled_distance, WithoutGil());
  module.def("self_attention_routing", &self_attention, WithoutGil());
  module.def("conv_caps_routing", &conv_caps, WithoutGil());
  module.def("conv2d", &conv2d, WithoutGil());
  module.def(
      "squash",
      [](const Tensor& preactivation, int64_t dim, const std::string& form, double epsilon) {
        return squash_form(form, epsilon)(preactivation, {dim});
      },
      WithoutGil());
  module.def(
      "squash_to_capsules",
      [](const Tensor& map, int64_t types, int64_t dim, const std::string& form, double epsilon,
         const std::string& kernels) {
        return squash_to_capsules(map, types, dim, squash_form(form, epsilon),
                                  kernel_path(kernels));
      },
      WithoutGil());
  module.def(
      "margin_loss",
      [](const Tensor& lengths, const Tensor& labels, double m_plus, double m_minus, double lambda,
         const std::string& kernels) {
        if (lengths.dim() == 2) check_labels(labels, lengths.size(1));
        return margin_loss(lengths, labels,
                           {.m_plus = m_plus, .m_minus = m_minus, .lambda = lambda},
                           kernel_path(kernels));
      },
      WithoutGil());
  module.def(
      "quantize",
      [](const Tensor& couplings, int64_t levels) {
        return quantize(couplings, quantizer_of(levels));
      },
      WithoutGil());
  module.def(
      "level_indices",
      [](const Tensor& couplings, int64_t levels) {
        return level_indices(couplings, quantizer_of(levels));
      },
      WithoutGil());
}

}  // namespace remcaps::python
