#include "remcaps/ops/squash.h"

#include <torch/autograd.h>

#include "remcaps/base/error.h"
#include "remcaps/kernels/pointwise/pointwise.h"
#include "remcaps/ops/once_differentiable.h"
#ifdef REMCAPS_CUDA
#include "remcaps/ops/cuda_stream.h"
#endif

namespace remcaps {
namespace {

using kernels::CapsuleMap;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Whether h and w can be one index: the step from row to row is the width times that from pixel to
// pixel.
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

// What the backward pass of a squash needs.
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

class CapsuleSquash : public torch::autograd::Function<CapsuleSquash> {
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
    check_once_differentiable("squash");
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
    check_once_differentiable("squash");
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

bool has_fused_squash(const Squash& squash, const Tensor& map) {
  if (squash.form != Squash::Form::kNorm) return false;
#ifdef REMCAPS_CUDA
  if (map.is_cuda())
    return map.scalar_type() == torch::kFloat32 || map.scalar_type() == torch::kBFloat16;
#endif
  return map.is_cpu() && map.scalar_type() == torch::kFloat32;
}

void check_map(const Tensor& map, int64_t types, int64_t dim) {
  check(map.dim() == 4 && map.size(1) == types * dim,
        "squash: map [{}]; expected [B, {} types x {}, h, w]", fmt::join(map.sizes(), ", "), types,
        dim);
}

// The map if a CapsuleMap can describe it, otherwise a copy.
Tensor readable_map(const Tensor& map) {
  return map.is_non_overlapping_and_dense() && has_flat_places(map) ? map : map.contiguous();
}

Tensor plain_capsules(const Tensor& given, int64_t types, int64_t dim, const Squash& squash) {
  // Autocast leaves bfloat16 maps on a GPU; capsules are float32.
  const Tensor map = given.is_cuda() ? given.to(torch::kFloat32) : given;
  const int64_t batch = map.size(0), places = map.size(2) * map.size(3);
  return squash(map.reshape({batch, types, dim, places}), {2})
      .transpose(2, 3)  // [B, types, h·w, D]
      .reshape({batch, types * places, dim});
}

Tensor plain_channels(const Tensor& map, int64_t types, int64_t dim, const Squash& squash) {
  return squash(map.unflatten(1, {types, dim}), {2}).flatten(1, 2);
}

}  // namespace

Tensor squash(const Tensor& preactivation, at::IntArrayRef dims, double epsilon) {
  const Tensor n2 = preactivation.square().sum(dims, /*keepdim=*/true);
  return preactivation * (n2 / ((1 + n2) * torch::sqrt(n2 + epsilon)));
}

Tensor squash_exponential(const Tensor& preactivation, at::IntArrayRef dims, double epsilon) {
  const Tensor n = torch::sqrt(preactivation.square().sum(dims, /*keepdim=*/true) + epsilon);
  return preactivation * (-torch::expm1(-n) / n);
}

Tensor safe_norm(const Tensor& poses, int64_t dim, double epsilon) {
  if (epsilon == 0.0) return poses.norm(2, dim);
  return torch::sqrt(poses.square().sum(dim) + epsilon);
}

Tensor Squash::operator()(const Tensor& preactivation, at::IntArrayRef dims) const {
  return form == Form::kNorm ? squash(preactivation, dims, epsilon)
                             : squash_exponential(preactivation, dims, epsilon);
}

Tensor squash_to_capsules(const Tensor& map, int64_t types, int64_t dim, const Squash& squash,
                          KernelPath kernels) {
  check_map(map, types, dim);
  if (kernels == KernelPath::kFused && has_fused_squash(squash, map))
    return CapsuleSquash::apply(readable_map(map), types, dim, squash.epsilon);
  return plain_capsules(map, types, dim, squash);
}

Tensor squash_channels(const Tensor& map, int64_t types, int64_t dim, const Squash& squash,
                       KernelPath kernels) {
  check_map(map, types, dim);
  if (kernels == KernelPath::kFused && has_fused_squash(squash, map))
    return ChannelSquash::apply(readable_map(map), types, dim, squash.epsilon);
  return plain_channels(map, types, dim, squash);
}

}  // namespace remcaps
