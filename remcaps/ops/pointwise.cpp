#include "remcaps/ops/pointwise.h"

#include <fmt/ranges.h>
#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "remcaps/kernels/pointwise/pointwise.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using kernels::CapsuleMap;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Places of a row follow each other as rows do: then h and w are one index.
bool has_flat_places(const Tensor& map) {
  return map.stride(2) == map.stride(3) * map.size(3) || map.size(2) == 1;
}

CapsuleMap capsule_map(const Tensor& map, int64_t types, int64_t dim) {
  return {.batch = map.size(0),
          .types = types,
          .dim = dim,
          .places = map.size(2) * map.size(3),
          .batch_stride = map.stride(0),
          .type_stride = map.stride(1) * dim,
          .dim_stride = map.stride(1),
          .place_stride = map.stride(3)};
}

// What a squash's backward pass needs.
struct SquashInputs {
  Tensor map;
  CapsuleMap shape;
  float epsilon;
};

void remember(AutogradContext* context, const Tensor& map, int64_t types, int64_t dim,
              double epsilon) {
  context->save_for_backward({map});
  context->saved_data["types"] = types;
  context->saved_data["dim"] = dim;
  context->saved_data["epsilon"] = epsilon;
}

SquashInputs recalled(AutogradContext* context) {
  const Tensor map = context->get_saved_variables()[0];
  auto& numbers = context->saved_data;
  return {map, capsule_map(map, numbers["types"].toInt(), numbers["dim"].toInt()),
          static_cast<float>(numbers["epsilon"].toDouble())};
}

class PrimarySquash : public torch::autograd::Function<PrimarySquash> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& map, int64_t types, int64_t dim,
                        double epsilon) {
    const CapsuleMap shape = capsule_map(map, types, dim);
    const auto small = static_cast<float>(epsilon);
    Tensor capsules = torch::empty({shape.batch, types * shape.places, dim},
                                   map.options().dtype(torch::kFloat32).requires_grad(false));
    remember(context, map, types, dim, epsilon);
#ifdef REMCAPS_CUDA
    if (map.is_cuda()) {
      const kernels::cuda::DeviceScope scope(map);
      kernels::cuda::squash_map(shape, kernels::cuda::map_type(map), map.data_ptr(), small,
                                capsules.data_ptr<float>(), scope.stream());
      return capsules;
    }
#endif
    kernels::cpu::squash_map(shape, map.data_ptr<float>(), small, capsules.data_ptr<float>());
    return capsules;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto [map, shape, epsilon] = recalled(context);
    const Tensor grad_capsules = grad_outputs[0].contiguous();
    Tensor grad_map = torch::empty_strided(map.sizes(), map.strides(), map.options());
#ifdef REMCAPS_CUDA
    if (map.is_cuda()) {
      const kernels::cuda::DeviceScope scope(map);
      kernels::cuda::squash_map_gradient(shape, kernels::cuda::map_type(map), map.data_ptr(),
                                         grad_capsules.data_ptr<float>(), epsilon,
                                         grad_map.data_ptr(), scope.stream());
      return {grad_map, Tensor(), Tensor(), Tensor()};
    }
#endif
    kernels::cpu::squash_map_gradient(shape, map.data_ptr<float>(), grad_capsules.data_ptr<float>(),
                                      epsilon, grad_map.data_ptr<float>());
    return {grad_map, Tensor(), Tensor(), Tensor()};
  }
};

class ChannelSquash : public torch::autograd::Function<ChannelSquash> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& map, int64_t types, int64_t dim,
                        double epsilon) {
    const CapsuleMap shape = capsule_map(map, types, dim);
    const auto small = static_cast<float>(epsilon);
    const Tensor squashed =
        torch::empty_strided(map.sizes(), map.strides(), map.options().requires_grad(false));
    remember(context, map, types, dim, epsilon);
#ifdef REMCAPS_CUDA
    if (map.is_cuda()) {
      const kernels::cuda::DeviceScope scope(map);
      kernels::cuda::squash_channels(shape, kernels::cuda::map_type(map), map.data_ptr(), small,
                                     squashed.data_ptr(), scope.stream());
      return squashed;
    }
#endif
    kernels::cpu::squash_channels(shape, map.data_ptr<float>(), small, squashed.data_ptr<float>());
    return squashed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto [map, shape, epsilon] = recalled(context);
    const auto options = map.options().requires_grad(false);
    Tensor grad_squashed = grad_outputs[0];
    if (grad_squashed.strides() != map.strides())
      grad_squashed =
          torch::empty_strided(map.sizes(), map.strides(), options).copy_(grad_squashed);
    const Tensor grad_map = torch::empty_strided(map.sizes(), map.strides(), options);
#ifdef REMCAPS_CUDA
    if (map.is_cuda()) {
      const kernels::cuda::DeviceScope scope(map);
      kernels::cuda::squash_channels_gradient(shape, kernels::cuda::map_type(map), map.data_ptr(),
                                              grad_squashed.data_ptr(), epsilon,
                                              grad_map.data_ptr(), scope.stream());
      return {grad_map, Tensor(), Tensor(), Tensor()};
    }
#endif
    kernels::cpu::squash_channels_gradient(shape, map.data_ptr<float>(),
                                           grad_squashed.data_ptr<float>(), epsilon,
                                           grad_map.data_ptr<float>());
    return {grad_map, Tensor(), Tensor(), Tensor()};
  }
};

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
    return {context->get_saved_variables()[0] * grad_outputs[0], Tensor(), Tensor()};
  }
};

bool on_kernel_device(const Tensor& tensor) {
#ifdef REMCAPS_CUDA
  return tensor.is_cpu() || tensor.is_cuda();
#else
  return tensor.is_cpu();
#endif
}

// The map where a CapsuleMap can describe it, else a copy of it.
Tensor readable_map(const Tensor& map, int64_t types, int64_t dim) {
  check(has_fused_squash(map) && map.dim() == 4 && map.size(1) == types * dim,
        "fused squash: map [{}] of {} on {}; expected float32 [B, {} types x {}, h, w]",
        fmt::join(map.sizes(), ", "), c10::toString(map.scalar_type()), map.device().str(), types,
        dim);
  return map.is_non_overlapping_and_dense() && has_flat_places(map) ? map : map.contiguous();
}

}  // namespace

bool has_fused_squash(const Tensor& map) {
  return on_kernel_device(map) && (map.scalar_type() == torch::kFloat32 ||
                                   (map.is_cuda() && map.scalar_type() == torch::kBFloat16));
}

Tensor fused_primary_squash(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return PrimarySquash::apply(readable_map(map, types, dim), types, dim, epsilon);
}

Tensor fused_channel_squash(const Tensor& map, int64_t types, int64_t dim, double epsilon) {
  return ChannelSquash::apply(readable_map(map, types, dim), types, dim, epsilon);
}

bool has_fused_margin_loss(const Tensor& activations, const Tensor& labels) {
  return on_kernel_device(activations) && activations.scalar_type() == torch::kFloat32 &&
         labels.scalar_type() == torch::kInt64 && activations.dim() == 2 && labels.dim() == 1 &&
         labels.size(0) == activations.size(0) && labels.device() == activations.device();
}

Tensor fused_margin_loss(const Tensor& activations, const Tensor& labels, double m_plus,
                         double m_minus, double lambda) {
  check(has_fused_margin_loss(activations, labels),
        "fused margin loss: activations [{}] of {} and labels [{}] of {}; expected float32 [B, "
        "classes] and int64 [B] on one device",
        fmt::join(activations.sizes(), ", "), c10::toString(activations.scalar_type()),
        fmt::join(labels.sizes(), ", "), c10::toString(labels.scalar_type()));
  return MarginLoss::apply(activations.contiguous(), labels.contiguous(),
                           kernels::Margins{.plus = static_cast<float>(m_plus),
                                            .minus = static_cast<float>(m_minus),
                                            .lambda = static_cast<float>(lambda)});
}

}  // namespace remcaps
