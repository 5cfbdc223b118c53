#include "remcaps/ops/routing.h"

#include <fmt/ranges.h>
#include <torch/autograd.h>

#include <cmath>
#include <limits>
#include <string>

#include "remcaps/base/error.h"
#include "remcaps/kernels/routing/dynamic_routing.h"
#include "remcaps/kernels/routing/scaled_distance.h"
#include "remcaps/ops/once_differentiable.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using kernels::Agreement;
using kernels::RoutingGradients;
using kernels::RoutingRule;
using kernels::RoutingShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// autograd::Function takes no undefined tensors: a missing input is an empty tensor.
bool is_given(const Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0;
}

float* data_or_null(const Tensor& tensor) {
  return is_given(tensor) ? tensor.data_ptr<float>() : nullptr;
}

// The largest float that is not above x. For every float c, c <= x if and only if c <= result.
float rounded_down(double x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<double>(nearest) <= x
             ? nearest
             : std::nextafter(nearest, -std::numeric_limits<float>::infinity());
}

// `tables` holds the edges [K + 1], then the centres [K].
kernels::CouplingLevels levels_in(const Tensor& tables) {
  if (!tables.defined()) return {};
  const int64_t count = tables.numel() / 2;
  const float* edges = tables.data_ptr<float>();
  return {.edges = edges, .centres = edges + count + 1, .count = count};
}

// c_ij of the first iteration, in which all logits are 0.
float first_coupling(const FusedRoutingOptions& options, int64_t parents) {
  const float coupling = 1.0F / static_cast<float>(parents);
  if (options.iterations > 1 || options.level_centres.empty()) return coupling;
  size_t level = 0;
  while (level + 1 < options.level_centres.size() && coupling > options.level_edges[level + 1])
    ++level;
  return options.level_centres[level];
}

// The tables of levels_in() on the device; undefined if there are no levels.
Tensor level_tables(const FusedRoutingOptions& options, const torch::Device& device) {
  if (options.level_centres.empty()) return {};
  std::vector<float> tables;
  for (const double edge : options.level_edges) tables.push_back(rounded_down(edge));
  tables.insert(tables.end(), options.level_centres.begin(), options.level_centres.end());
  return torch::tensor(tables, torch::kFloat32).to(device);
}

RoutingRule rule_of(const FusedRoutingOptions& options, Agreement agreement, int64_t parents,
                    const Tensor& levels) {
  return {.agreement = agreement,
          .iterations = options.iterations,
          .epsilon = static_cast<float>(options.epsilon),
          .bias_every_iteration = options.bias_every_iteration,
          .first_coupling = first_coupling(options, parents),
          .levels = levels_in(levels),
          .full_gradient = options.full_gradient};
}

// The kernels of both algorithms have the same arguments.
struct CpuKernels {
  decltype(&kernels::cpu::dynamic_routing_saved_floats) saved_floats;
  decltype(&kernels::cpu::dynamic_routing_forward) forward;
  decltype(&kernels::cpu::dynamic_routing_backward) backward;
};

constexpr CpuKernels kDynamicOnCpu{kernels::cpu::dynamic_routing_saved_floats,
                                   kernels::cpu::dynamic_routing_forward,
                                   kernels::cpu::dynamic_routing_backward};
constexpr CpuKernels kScaledDistanceOnCpu{kernels::cpu::scaled_distance_saved_floats,
                                          kernels::cpu::scaled_distance_forward,
                                          kernels::cpu::scaled_distance_backward};

const CpuKernels& cpu_kernels(const RoutingRule& rule) {
  return rule.agreement == Agreement::kProduct ? kDynamicOnCpu : kScaledDistanceOnCpu;
}

#ifdef REMCAPS_CUDA
struct CudaKernels {
  decltype(&kernels::cuda::dynamic_routing_saved_floats) saved_floats;
  decltype(&kernels::cuda::dynamic_routing_forward_scratch_floats) forward_scratch_floats;
  decltype(&kernels::cuda::dynamic_routing_backward_scratch_floats) backward_scratch_floats;
  decltype(&kernels::cuda::dynamic_routing_forward) forward;
  decltype(&kernels::cuda::dynamic_routing_backward) backward;
};

constexpr CudaKernels kDynamicOnCuda{kernels::cuda::dynamic_routing_saved_floats,
                                     kernels::cuda::dynamic_routing_forward_scratch_floats,
                                     kernels::cuda::dynamic_routing_backward_scratch_floats,
                                     kernels::cuda::dynamic_routing_forward,
                                     kernels::cuda::dynamic_routing_backward};
constexpr CudaKernels kScaledDistanceOnCuda{kernels::cuda::scaled_distance_saved_floats,
                                            kernels::cuda::scaled_distance_forward_scratch_floats,
                                            kernels::cuda::scaled_distance_backward_scratch_floats,
                                            kernels::cuda::scaled_distance_forward,
                                            kernels::cuda::scaled_distance_backward};

const CudaKernels& cuda_kernels(const RoutingRule& rule) {
  return rule.agreement == Agreement::kProduct ? kDynamicOnCuda : kScaledDistanceOnCuda;
}
#endif

// The three functions below run on the device of their tensors, as choose_routing() decided.
int64_t saved_floats(const torch::Device& device, const RoutingShape& shape,
                     const RoutingRule& rule) {
#ifdef REMCAPS_CUDA
  if (device.is_cuda()) return cuda_kernels(rule).saved_floats(shape, rule);
#endif
  (void)device;
  return cpu_kernels(rule).saved_floats(shape, rule);
}

void forward_on(const RoutingShape& shape, const RoutingRule& rule, const Tensor& children,
                const Tensor& weight, const Tensor& bias, const Tensor& poses,
                const Tensor& couplings, const Tensor& saved) {
#ifdef REMCAPS_CUDA
  if (children.is_cuda()) {
    const kernels::cuda::DeviceScope scope(children);
    const CudaKernels& cuda = cuda_kernels(rule);
    const Tensor scratch =
        torch::empty({cuda.forward_scratch_floats(shape, rule, saved.defined())}, poses.options());
    return cuda.forward(shape, rule, data_or_null(children), data_or_null(weight),
                        data_or_null(bias), data_or_null(poses), data_or_null(couplings),
                        data_or_null(saved), scratch.data_ptr<float>(), scope.stream());
  }
#endif
  cpu_kernels(rule).forward(shape, rule, data_or_null(children), data_or_null(weight),
                            data_or_null(bias), data_or_null(poses), data_or_null(couplings),
                            data_or_null(saved));
}

void backward_on(const RoutingShape& shape, const RoutingRule& rule, const Tensor& children,
                 const Tensor& weight, const Tensor& saved, const Tensor& grad_poses,
                 const RoutingGradients& gradients) {
#ifdef REMCAPS_CUDA
  if (children.is_cuda()) {
    const kernels::cuda::DeviceScope scope(children);
    const CudaKernels& cuda = cuda_kernels(rule);
    const Tensor scratch =
        torch::empty({cuda.backward_scratch_floats(shape, rule, gradients)}, children.options());
    return cuda.backward(shape, rule, data_or_null(children), data_or_null(weight),
                         data_or_null(saved), data_or_null(grad_poses), gradients,
                         scratch.data_ptr<float>(), scope.stream());
  }
#endif
  cpu_kernels(rule).backward(shape, rule, data_or_null(children), data_or_null(weight),
                             data_or_null(saved), data_or_null(grad_poses), gradients);
}

RoutingShape shape_of(const Tensor& weight, int64_t batch) {
  return {.batch = batch,
          .children = weight.size(0),
          .parents = weight.size(1),
          .child_dim = weight.size(3),
          .parent_dim = weight.size(2)};
}

struct Results {
  Results(const RoutingShape& shape, const FusedRoutingOptions& options,
          const torch::TensorOptions& floats)
      : poses(torch::empty({shape.batch, shape.parents, shape.parent_dim}, floats)) {
    if (options.return_couplings)
      couplings = torch::empty({shape.batch, shape.children, shape.parents}, floats);
  }
  Tensor poses, couplings;
};

class FusedRouting : public torch::autograd::Function<FusedRouting> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& children,
                               const Tensor& weight, const Tensor& bias,
                               const FusedRoutingOptions& options, Agreement agreement,
                               bool needs_gradient) {
    const RoutingShape shape = shape_of(weight, children.size(0));
    const Tensor levels = level_tables(options, children.device());
    RoutingRule rule = rule_of(options, agreement, shape.parents, levels);
    rule.full_gradient = rule.full_gradient && needs_gradient;
    const auto floats = children.options().requires_grad(false);
    const Results results(shape, options, floats);
    Tensor saved;
    if (needs_gradient)
      saved = torch::empty({saved_floats(children.device(), shape, rule)}, floats);
    forward_on(shape, rule, children, weight, bias, results.poses, results.couplings, saved);
    if (needs_gradient) {
      context->save_for_backward({children, weight, bias, saved, levels});
      context->saved_data["agreement"] = static_cast<int64_t>(agreement);
      context->saved_data["iterations"] = options.iterations;
      context->saved_data["epsilon"] = options.epsilon;
      context->saved_data["bias_every_iteration"] = options.bias_every_iteration;
      context->saved_data["full_gradient"] = options.full_gradient;
      context->saved_data["first_coupling"] = static_cast<double>(rule.first_coupling);
    }
    if (!results.couplings.defined()) return {results.poses};
    context->mark_non_differentiable({results.couplings});
    return {results.poses, results.couplings};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("routing");
    const variable_list inputs = context->get_saved_variables();
    const Tensor &children = inputs[0], &weight = inputs[1], &bias = inputs[2];
    auto& numbers = context->saved_data;
    const RoutingRule rule{
        .agreement = static_cast<Agreement>(numbers["agreement"].toInt()),
        .iterations = numbers["iterations"].toInt(),
        .epsilon = static_cast<float>(numbers["epsilon"].toDouble()),
        .bias_every_iteration = numbers["bias_every_iteration"].toBool(),
        .first_coupling = static_cast<float>(numbers["first_coupling"].toDouble()),
        .levels = levels_in(inputs[4]),
        .full_gradient = numbers["full_gradient"].toBool()};

    const auto gradient_of = [](const Tensor& input) {
      return is_given(input) && input.requires_grad() ? torch::empty_like(input) : Tensor();
    };
    const Tensor grad_children = gradient_of(children);
    const Tensor grad_weight = gradient_of(weight);
    const Tensor grad_bias = gradient_of(bias);
    backward_on(shape_of(weight, children.size(0)), rule, children, weight, inputs[3],
                grad_outputs[0].contiguous(),
                {.children = data_or_null(grad_children),
                 .weight = data_or_null(grad_weight),
                 .bias = data_or_null(grad_bias)});
    return {grad_children, grad_weight, grad_bias, Tensor(), Tensor(), Tensor()};
  }
};

kernels::cpu::ChildMatrices packed_matrices(const Tensor& weight) {
  check(weight.dim() == 4 && weight.is_cpu() && weight.scalar_type() == torch::kFloat32,
        "packed matrices: {} {} on {}; expected IxJxD_outxD_in float32 on the CPU",
        fmt::join(weight.sizes(), "x"), c10::toString(weight.scalar_type()), weight.device().str());
  return {shape_of(weight, 0), weight.detach().contiguous().data_ptr<float>()};
}

bool needs_gradient_of(const Tensor& children, const Tensor& weight, const Tensor& bias) {
  return torch::GradMode::is_enabled() && (children.requires_grad() || weight.requires_grad() ||
                                           (bias.defined() && bias.requires_grad()));
}

RoutingQuery query_of(const Tensor& children, const Tensor& weight, Agreement agreement) {
  RoutingQuery query{.agreement = agreement, .device = children.device().type()};
  if (children.dim() == 3 && weight.dim() == 4) query.shape = shape_of(weight, children.size(0));
  query.float32 = children.scalar_type() == torch::kFloat32 &&
                  weight.scalar_type() == torch::kFloat32 && children.device() == weight.device();
  return query;
}

std::tuple<Tensor, Tensor> route_few_images(const Tensor& children, const Tensor& weight,
                                            const Tensor& bias, const FusedRoutingOptions& options,
                                            const PackedMatrices& packed) {
  check(packed.shape() == shape_of(weight, 0),
        "dynamic routing: matrices packed for {} children and {} parents; expected those of "
        "weight [{}]",
        packed.shape().children, packed.shape().parents, fmt::join(weight.sizes(), ", "));
  const RoutingShape shape = shape_of(weight, children.size(0));
  const Tensor levels = level_tables(options, children.device());
  const Results results(shape, options, children.options().requires_grad(false));
  const Tensor dense_bias = bias.defined() ? bias.contiguous() : Tensor();
  kernels::cpu::few_images_forward(
      shape, rule_of(options, Agreement::kProduct, shape.parents, levels),
      children.contiguous().data_ptr<float>(), packed, data_or_null(dense_bias),
      results.poses.data_ptr<float>(), data_or_null(results.couplings));
  return {results.poses, results.couplings};
}

std::tuple<Tensor, Tensor> route_fused(const Tensor& children, const Tensor& weight,
                                       const Tensor& bias, const FusedRoutingOptions& options,
                                       Agreement agreement, bool needs_gradient) {
  const variable_list outputs =
      FusedRouting::apply(children.contiguous(), weight.contiguous(),
                          bias.defined() ? bias.contiguous() : torch::empty({0}, weight.options()),
                          options, agreement, needs_gradient);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : Tensor()};
}

std::tuple<Tensor, Tensor> run_routing(const std::string& algorithm, const Tensor& children,
                                       const Tensor& weight, const Tensor& bias,
                                       const FusedRoutingOptions& options, Agreement agreement,
                                       const PackedMatrices* packed) {
  check_routing_inputs(algorithm, children, weight, bias, options.iterations);
  check(options.level_centres.empty() ||
            options.level_edges.size() == options.level_centres.size() + 1,
        "{} routing: {} level edges for {} levels; expected one more than levels", algorithm,
        options.level_edges.size(), options.level_centres.size());
  RoutingQuery query = query_of(children, weight, agreement);
  query.gradient = needs_gradient_of(children, weight, bias);
  query.packed = packed != nullptr;
  switch (choose_routing(query)) {
    case RoutingPath::kFewImages:
      return route_few_images(children, weight, bias, options, *packed);
    case RoutingPath::kCpu:
    case RoutingPath::kCuda:
      return route_fused(children, weight, bias, options, agreement, query.gradient);
    case RoutingPath::kPlain:
      break;
  }
  fail("{} routing: no kernel for children {} ({} on {}) and weight {} ({} on {})", algorithm,
       fmt::join(children.sizes(), "x"), c10::toString(children.scalar_type()),
       children.device().str(), fmt::join(weight.sizes(), "x"), c10::toString(weight.scalar_type()),
       weight.device().str());
}

}  // namespace

void check_routing_inputs(const std::string& algorithm, const Tensor& children,
                          const Tensor& weight, const Tensor& bias, int64_t iterations) {
  check(children.dim() == 3 && weight.dim() == 4 && children.size(1) == weight.size(0) &&
            children.size(2) == weight.size(3),
        "{} routing: children [{}] and weight [{}]; expected [B, I, Din] and [I, J, Dout, Din]",
        algorithm, fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  if (bias.defined())
    check(bias.dim() == 2 && bias.size(0) == weight.size(1) && bias.size(1) == weight.size(2),
          "{} routing: bias [{}]; expected [J, Dout] of weight [{}]", algorithm,
          fmt::join(bias.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  check(iterations >= 1, "{} routing: {} iterations; expected at least 1", algorithm, iterations);
}

RoutingPath choose_routing(const RoutingQuery& query) {
  const RoutingShape& shape = query.shape;
  const bool is_empty = shape.batch * shape.children * shape.child_dim * shape.pose_size() == 0;
  if (!query.float32 || is_empty) return RoutingPath::kPlain;
  const bool is_dynamic = query.agreement == Agreement::kProduct;
  if (query.device == torch::kCPU) {
    const bool few = is_dynamic && query.packed && !query.gradient &&
                     shape.batch <= kernels::cpu::most_few_images();
    return few ? RoutingPath::kFewImages : RoutingPath::kCpu;
  }
  if (query.device != torch::kCUDA || !query.cuda_kernels) return RoutingPath::kPlain;
  return is_dynamic || kernels::cuda::has_scaled_distance_kernels(shape.child_dim, shape.parent_dim)
             ? RoutingPath::kCuda
             : RoutingPath::kPlain;
}

PackedMatrices::PackedMatrices(const Tensor& weight) : ChildMatrices(packed_matrices(weight)) {}

bool has_fused_dynamic_routing(const Tensor& children, const Tensor& weight) {
  return choose_routing(query_of(children, weight, Agreement::kProduct)) != RoutingPath::kPlain;
}

bool has_fused_scaled_distance_routing(const Tensor& children, const Tensor& weight) {
  return choose_routing(query_of(children, weight, Agreement::kBatchDistance)) !=
         RoutingPath::kPlain;
}

std::tuple<Tensor, Tensor> fused_dynamic_routing(const Tensor& children, const Tensor& weight,
                                                 const Tensor& bias,
                                                 const FusedRoutingOptions& options,
                                                 const PackedMatrices* packed) {
  return run_routing("dynamic", children, weight, bias, options, Agreement::kProduct, packed);
}

std::tuple<Tensor, Tensor> fused_scaled_distance_routing(const Tensor& children,
                                                         const Tensor& weight, const Tensor& bias,
                                                         const FusedRoutingOptions& options,
                                                         DistanceMean mean) {
  return run_routing(
      "scaled-distance", children, weight, bias, options,
      mean == DistanceMean::kBatch ? Agreement::kBatchDistance : Agreement::kImageDistance,
      /*packed=*/nullptr);
}

}  // namespace remcaps
