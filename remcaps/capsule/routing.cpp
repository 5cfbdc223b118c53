#include "remcaps/capsule/routing.h"

#include <fmt/ranges.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/ops/routing.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

void check_shapes(const char* algorithm, const Tensor& children, const Tensor& weight,
                  const Tensor& bias) {
  check(children.dim() == 3 && weight.dim() == 4 && children.size(1) == weight.size(0) &&
            children.size(2) == weight.size(3),
        "{} routing: children [{}] and weight [{}]; expected [B, I, Din] and [I, J, Dout, Din]",
        algorithm, fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  check(!bias.defined() ||
            (bias.dim() == 2 && bias.size(0) == weight.size(1) && bias.size(1) == weight.size(2)),
        "{} routing: bias [{}]; expected [J, Dout] of weight [{}]", algorithm,
        bias.defined() ? fmt::format("{}", fmt::join(bias.sizes(), ", ")) : "",
        fmt::join(weight.sizes(), ", "));
}

Tensor zero_logits(const Tensor& votes) {
  return torch::zeros({votes.size(0), votes.size(1), votes.size(2)}, votes.options());
}

// s_j = sum_i c_ij û_ij, [B, J, D].
Tensor weighted_sum(const Tensor& coupling, const Tensor& votes) {
  return torch::einsum("bij,bijd->bjd", {coupling, votes});
}

// q_K(c) in c's own type (levels are float32).
Tensor quantized(const Tensor& coupling, const RoutingRequest& request) {
  if (!request.quantizer) return coupling;
  return quantize(coupling, *request.quantizer).to(coupling.scalar_type());
}

bool bias_now(BiasUse use, bool last) {
  return use == BiasUse::kEvery || (use == BiasUse::kLast && last);
}

template <typename Options>
bool wants_fused(const Options& options) {
  return options.kernels == KernelPath::kFused && options.squash.form == Squash::Form::kNorm;
}

// Where no gradient is recorded it does not matter which it would be.
bool wants_full_gradient(RoutingGradient gradient) {
  return gradient == RoutingGradient::kFull && torch::GradMode::is_enabled();
}

template <typename Options>
FusedRoutingOptions fused_options(const Options& options, const RoutingRequest& request) {
  FusedRoutingOptions fused;
  fused.iterations = options.iterations;
  fused.epsilon = options.squash.epsilon;
  fused.bias_every_iteration = options.bias == BiasUse::kEvery;
  fused.full_gradient = wants_full_gradient(options.gradient);
  fused.return_couplings = request.coupling;
  if (request.quantizer) {
    fused.level_edges = request.quantizer->edges();
    fused.level_centres = request.quantizer->centres();
  }
  return fused;
}

// û <- min(||u_i||, ||û_ij||) û/||û||: a vote is never longer than the child that casts it. Written
// with a factor that is 1 where nothing is to be clamped, so that a vote of length 0 stays one.
Tensor clamp_votes(const Tensor& votes, const Tensor& children) {
  const Tensor vote_length = votes.norm(2, -1);                    // [B, I, J]
  const Tensor child_length = children.norm(2, -1).unsqueeze(-1);  // [B, I, 1]
  const Tensor shrunk = child_length / vote_length.clamp_min(1e-12);
  const Tensor factor =
      torch::where(vote_length > child_length, shrunk, torch::ones_like(vote_length));
  return votes * factor.unsqueeze(-1);
}

// The logits t · d of scaled-distance agreement.
//   distance [B, I, J]  d_ij = ||v_j - û_ij||
Tensor distance_logits(const Tensor& distance, ScaledDistanceRouting::Mean mean) {
  const auto parents = static_cast<double>(distance.size(2));
  // One parent takes all whatever its distance; the formula's log(0.9 (J - 1)) has no value there.
  if (parents < 2) return torch::zeros_like(distance);
  const Tensor d_o = mean == ScaledDistanceRouting::Mean::kBatch
                         ? distance.mean()
                         : distance.mean({1, 2}, /*keepdim=*/true);  // scalar or [B, 1, 1]
  const Tensor d_p = 0.5 * d_o;
  const Tensor t = (std::log(0.9 * (parents - 1)) - std::log(0.1)) / (d_p - d_o + 1e-12);
  return t * distance;
}

}  // namespace

std::string routing_name(const RoutingOptions& options) {
  if (std::holds_alternative<DynamicRouting>(options)) return "dynamic";
  if (std::holds_alternative<ScaledDistanceRouting>(options)) return "scaled-distance";
  return "self-attention";
}

int64_t routing_iterations(const RoutingOptions& options) {
  if (const auto* dynamic = std::get_if<DynamicRouting>(&options)) return dynamic->iterations;
  if (const auto* scaled = std::get_if<ScaledDistanceRouting>(&options)) return scaled->iterations;
  return 1;
}

bool routing_has_bias(const RoutingOptions& options) {
  if (const auto* dynamic = std::get_if<DynamicRouting>(&options))
    return dynamic->bias != BiasUse::kNone;
  if (const auto* scaled = std::get_if<ScaledDistanceRouting>(&options))
    return scaled->bias != BiasUse::kNone;
  return false;
}

Tensor make_votes(const Tensor& children, const Tensor& weight) {
  const int64_t batch = children.size(0), count = weight.size(0);
  const int64_t parents = weight.size(1), dim = weight.size(2);
  // One matrix product per child: [I, B, Din] x [I, Din, J·Dout].
  const Tensor products = torch::bmm(children.transpose(0, 1),
                                     weight.reshape({count, parents * dim, -1}).transpose(1, 2));
  return products.transpose(0, 1).reshape({batch, count, parents, dim});
}

RoutingResult dynamic_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                              const DynamicRouting& options, const RoutingRequest& request,
                              const PackedMatrices* packed) {
  check_shapes("dynamic", children, weight, bias);
  check(options.iterations >= 1, "dynamic routing: {} iterations; expected at least 1",
        options.iterations);
  if (wants_fused(options) && has_fused_dynamic_routing(children, weight)) {
    const auto [poses, coupling] =
        fused_dynamic_routing(children, weight, options.bias == BiasUse::kNone ? Tensor() : bias,
                              fused_options(options, request), packed);
    return {poses, coupling, {}};
  }
  const Tensor votes = make_votes(children, weight);
  // With the published gradient the early iterations see the votes as constants: W and u get only
  // c_ij dL/ds_j. The bias stays live in every iteration, so it alone gets the way through c.
  const Tensor early_votes = options.gradient == RoutingGradient::kLast ? votes.detach() : votes;
  Tensor logits = zero_logits(votes);
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    Tensor coupling = torch::softmax(logits, /*dim=*/2);
    if (last) coupling = quantized(coupling, request);
    const Tensor& seen = last ? votes : early_votes;
    Tensor preactivation = weighted_sum(coupling, seen);
    if (bias.defined() && bias_now(options.bias, last)) preactivation = preactivation + bias;
    const Tensor poses = options.squash(preactivation, {-1});
    if (last) return {poses, coupling, {}};
    logits = logits + torch::einsum("bijd,bjd->bij", {seen, poses});  // agreement <û_ij, v_j>
  }
}

RoutingResult scaled_distance_routing(const Tensor& children, const Tensor& weight,
                                      const Tensor& bias, const ScaledDistanceRouting& options,
                                      const RoutingRequest& request) {
  check_shapes("scaled-distance", children, weight, bias);
  check(options.iterations >= 1, "scaled-distance routing: {} iterations; expected at least 1",
        options.iterations);
  if (wants_fused(options) && has_fused_scaled_distance_routing(children, weight)) {
    const auto [poses, coupling] = fused_scaled_distance_routing(
        children, weight, options.bias == BiasUse::kNone ? Tensor() : bias,
        fused_options(options, request),
        options.mean == ScaledDistanceRouting::Mean::kBatch ? DistanceMean::kBatch
                                                            : DistanceMean::kImage);
    return {poses, coupling, {}};
  }
  const bool full = wants_full_gradient(options.gradient);
  const Tensor votes = clamp_votes(make_votes(children, weight), children);
  Tensor logits = zero_logits(votes);
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    torch::AutoGradMode early_iterations_are_constants(torch::GradMode::is_enabled() &&
                                                       (full || last));
    Tensor coupling = torch::softmax(logits, /*dim=*/2);
    if (last) coupling = quantized(coupling, request);
    Tensor preactivation = weighted_sum(coupling, votes);
    if (bias.defined() && bias_now(options.bias, last)) preactivation = preactivation + bias;
    const Tensor poses = options.squash(preactivation, {-1});
    if (last) return {poses, coupling, {}};
    const Tensor distance = (poses.unsqueeze(1) - votes).norm(2, -1);  // [B, I, J]
    logits = distance_logits(distance, options.mean);                  // replaced, not accumulated
  }
}

RoutingResult self_attention_routing(const Tensor& children, const Tensor& weight,
                                     const Tensor& prior, const SelfAttentionRouting& options,
                                     const RoutingRequest& request) {
  check_shapes("self-attention", children, weight, {});
  check(prior.dim() == 2 && prior.size(0) == weight.size(0) && prior.size(1) == weight.size(1),
        "self-attention routing: prior [{}]; expected [I, J] of weight [{}]",
        fmt::join(prior.sizes(), ", "), fmt::join(weight.sizes(), ", "));
  const Tensor votes = make_votes(children, weight);
  // a_ij = sum_k <û_ij, û_kj> / sqrt(D) = <û_ij, sum_k û_kj> / sqrt(D): no I x I matrix is needed.
  const Tensor attention = torch::einsum("bijd,bjd->bij", {votes, votes.sum(1)}) /
                           std::sqrt(static_cast<double>(votes.size(3)));
  Tensor coupling = torch::softmax(attention, /*dim=*/2) + prior;
  Tensor clamped;
  if (request.quantizer) {
    clamped = torch::logical_or(coupling<0, coupling> 1).sum();
    coupling = quantized(coupling.clamp(0, 1), request);
  }
  return {options.squash(weighted_sum(coupling, votes), {-1}), coupling, clamped};
}

RoutingResult route(const Tensor& children, const Tensor& weight, const Tensor& bias,
                    const RoutingOptions& options, const RoutingRequest& request,
                    const PackedMatrices* packed) {
  const NoCudaAutocast float32(children.device());
  const Tensor poses = float32.was_on() ? children.to(torch::kFloat32) : children;
  if (const auto* dynamic = std::get_if<DynamicRouting>(&options))
    return dynamic_routing(poses, weight, bias, *dynamic, request, packed);
  if (const auto* scaled = std::get_if<ScaledDistanceRouting>(&options))
    return scaled_distance_routing(poses, weight, bias, *scaled, request);
  return self_attention_routing(poses, weight, bias, std::get<SelfAttentionRouting>(options),
                                request);
}

}  // namespace remcaps
