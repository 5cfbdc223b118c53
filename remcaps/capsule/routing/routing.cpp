#include "remcaps/capsule/routing/routing.h"

#include <fmt/format.h>

#include <map>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/capsule/routing/self_attention.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

// The built-in algorithms are listed here. Static initialisers in the algorithms' own files would
// not work: the linker drops them from a static library.
std::map<std::string, RoutingPtr>& routing_registry() {
  static std::map<std::string, RoutingPtr> algorithms = [] {
    std::map<std::string, RoutingPtr> built_in;
    for (const RoutingPtr& algorithm :
         {RoutingPtr(DynamicRouting{}), RoutingPtr(ScaledDistanceRouting{}),
          RoutingPtr(SelfAttentionRouting{})})
      built_in[algorithm->name()] = algorithm;
    return built_in;
  }();
  return algorithms;
}

constexpr int64_t kVoteFloats = 1 << 24;  // that are held at once

}  // namespace

std::optional<RoutingParameter> RoutingAlgorithm::parameter(const RoutedLayer&) const {
  return std::nullopt;
}

bool RoutingAlgorithm::describe(GraphNode&) const {
  return false;
}

RoutingPtr RoutingAlgorithm::configured(ConfigSection&) const {
  return shared_from_this();
}

RoutingPtr RoutingAlgorithm::with_kernels(KernelPath) const {
  return shared_from_this();
}

RoutingResult RoutingAlgorithm::route(const Tensor& children, const Tensor& weight,
                                      const Tensor& parameter, const RoutingRequest& request,
                                      const PackedMatrices* packed) const {
  const NoCudaAutocast float32(children.device());
  const Tensor poses = float32.was_on() ? children.to(torch::kFloat32) : children;
  RoutingResult result = run(poses, weight, parameter, request, packed);
  if (request.contributions) add_contributions(result, poses, weight, parameter);
  return result;
}

Tensor RoutingAlgorithm::votes(const Tensor& children, const Tensor& weight) const {
  return make_votes(children, weight);
}

Tensor RoutingAlgorithm::vote_weights(const Tensor& coupling, const Tensor&) const {
  return coupling;
}

Tensor RoutingAlgorithm::added_bias(const Tensor&) const {
  return {};
}

void RoutingAlgorithm::add_contributions(RoutingResult& result, const Tensor& children,
                                         const Tensor& weight, const Tensor& parameter) const {
  const torch::NoGradGuard no_grad;
  const Tensor bias = added_bias(parameter);
  std::vector<Tensor> contributions, of_bias;
  // The votes of a few images at a time: those of all windows of a map would not fit.
  const int64_t step =
      std::max<int64_t>(1, kVoteFloats / (weight.size(0) * weight.size(1) * weight.size(2)));
  for (int64_t begin = 0; begin < children.size(0); begin += step) {
    const int64_t end = std::min(children.size(0), begin + step);
    const Tensor seen = votes(children.slice(0, begin, end), weight);  // [b, I, J, Dout]
    const Tensor weights = vote_weights(result.coupling.slice(0, begin, end), parameter);
    Tensor preactivation = weighted_sum(weights, seen);  // s_j, [b, J, Dout]
    if (bias.defined()) preactivation = preactivation + bias;
    const Tensor direction = direction_of(preactivation);
    contributions.push_back(weights * torch::einsum("bijd,bjd->bij", {seen, direction}));
    of_bias.push_back(bias.defined() ? (bias * direction).sum(-1)
                                     : torch::zeros_like(direction.select(-1, 0)));
  }
  result.contribution = torch::cat(contributions);
  result.bias_contribution = torch::cat(of_bias);
}

void register_routing(RoutingPtr algorithm) {
  const std::string name = algorithm->name();
  routing_registry()[name] = std::move(algorithm);
}

RoutingPtr routing_by_name(const std::string& name) {
  const auto found = routing_registry().find(name);
  if (found == routing_registry().end())
    throw UsageError(
        fmt::format("unknown routing algorithm {}{}", name, suggestion(name, routing_names())));
  return found->second;
}

std::vector<std::string> routing_names() {
  std::vector<std::string> names;
  for (const auto& entry : routing_registry()) names.push_back(entry.first);
  return names;
}

void bind_routing(ConfigSection& section, RoutingPtr& routing) {
  ConfigSection keys = section.section("routing");
  std::string algorithm = routing->name();
  keys.key("algorithm", algorithm, routing_names());
  if (algorithm != routing->name()) routing = routing_by_name(algorithm);
  routing = routing->configured(keys);
  keys.finish();
  section.adopt("routing", keys);
}

std::string form_name(const Squash& squash) {
  return squash.form == Squash::Form::kNorm ? "norm" : "exponential";
}

Tensor make_votes(const Tensor& children, const Tensor& weight) {
  const int64_t batch = children.size(0), count = weight.size(0);
  const int64_t parents = weight.size(1), dim = weight.size(2);
  // One matrix product per child: [I, B, Din] x [I, Din, J·Dout].
  const Tensor products = torch::bmm(children.transpose(0, 1),
                                     weight.reshape({count, parents * dim, -1}).transpose(1, 2));
  return products.transpose(0, 1).reshape({batch, count, parents, dim});
}

Tensor weighted_sum(const Tensor& coupling, const Tensor& votes) {
  return torch::einsum("bij,bijd->bjd", {coupling, votes});
}

Tensor direction_of(const Tensor& preactivation) {
  return preactivation / preactivation.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

Tensor quantized(const Tensor& coupling, const RoutingRequest& request) {
  if (!request.quantizer) return coupling;
  // The levels are float32.
  return quantize(coupling, *request.quantizer).to(coupling.scalar_type());
}

}  // namespace remcaps
