#include "remcaps/capsule/fc_caps.h"

#include "remcaps/base/error.h"

namespace remcaps {

FcCapsImpl::FcCapsImpl(FcCapsOptions options_) : options(std::move(options_)) {
  const int64_t children = options.children(), parents = options.parents();
  check(options.shared_over() >= 1 && children % options.shared_over() == 0,
        "FcCaps: {} children cannot share matrices in groups of {}", children,
        options.shared_over());
  weight = register_parameter("weight", torch::randn({children / options.shared_over(), parents,
                                                      options.parent_dim(), options.child_dim()}) *
                                            options.weight_std());
  if (routing_has_bias(options.routing())) {
    Tensor start = torch::full({parents, options.parent_dim()}, options.bias_mean());
    if (options.bias_std() > 0) start += torch::randn_like(start) * options.bias_std();
    bias = register_parameter("bias", start);
  }
  if (std::holds_alternative<SelfAttentionRouting>(options.routing()))
    prior = register_parameter("prior", torch::zeros({children, parents}));
}

RoutingResult FcCapsImpl::forward(const Tensor& children, const RoutingRequest& request) {
  check(children.dim() == 3 && children.size(1) == options.children(),
        "FcCaps: input [{}]; expected [B, {}, {}]", fmt::join(children.sizes(), ", "),
        options.children(), options.child_dim());
  Tensor matrices = weight;
  if (options.shared_over() > 1)
    matrices = weight.unsqueeze(1)
                   .expand({-1, options.shared_over(), -1, -1, -1})
                   .reshape({options.children(), options.parents(), options.parent_dim(),
                             options.child_dim()});
  return route(children, matrices, prior.defined() ? prior : bias, options.routing(), request,
               packed());
}

void FcCapsImpl::pack() {
  packed_.forget();
  const auto* dynamic = std::get_if<DynamicRouting>(&options.routing());
  if (dynamic != nullptr && dynamic->kernels == KernelPath::kFused && options.shared_over() == 1 &&
      weight.is_cpu() && weight.scalar_type() == torch::kFloat32)
    packed_.pack(weight);
}

void FcCapsImpl::train(bool on) {
  if (on) packed_.forget();
  Module::train(on);
}

}  // namespace remcaps
