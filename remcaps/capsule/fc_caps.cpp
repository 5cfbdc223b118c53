#include "remcaps/capsule/fc_caps.h"

#include "remcaps/base/error.h"
#include "remcaps/capsule/packed_weight.h"
#include "remcaps/ops/routing.h"

namespace remcaps {

FcCapsImpl::FcCapsImpl(FcCapsOptions options_) : options(std::move(options_)) {
  check(options.shared_over() >= 1 && options.children() % options.shared_over() == 0,
        "FcCaps: {} children cannot share matrices in groups of {}", options.children(),
        options.shared_over());
  weight = register_parameter(
      "weight", torch::randn({options.children() / options.shared_over(), options.parents(),
                              options.parent_dim(), options.child_dim()}) *
                    options.weight_std());
  if (const auto parameter = options.routing()->parameter(options.layer())) {
    Tensor start = torch::full(parameter->shape, parameter->mean, torch::kFloat32);
    if (parameter->std > 0) start += torch::randn_like(start) * parameter->std;
    routing_parameter = register_parameter(parameter->name, start);
  }
}

RoutingResult FcCapsImpl::forward(const Tensor& children, const RoutingRequest& request) {
  Tensor matrices = weight;
  if (options.shared_over() > 1)
    matrices = weight.unsqueeze(1)
                   .expand({-1, options.shared_over(), -1, -1, -1})
                   .reshape({options.children(), options.parents(), options.parent_dim(),
                             options.child_dim()});
  return options.routing()->route(children, matrices, routing_parameter, request, packed());
}

void FcCapsImpl::pack() {
  packed_.reset();
  if (options.routing()->uses_packed_matrices() && options.shared_over() == 1 && weight.is_cpu() &&
      weight.scalar_type() == torch::kFloat32)
    packed_ = std::make_shared<const PackedWeight<PackedMatrices>>(weight);
}

const PackedMatrices* FcCapsImpl::packed() const {
  return form_of(packed_, weight);
}

void FcCapsImpl::train(bool on) {
  if (on && weight.requires_grad()) packed_.reset();
  Module::train(on);
}

}  // namespace remcaps
