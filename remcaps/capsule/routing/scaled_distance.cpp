#include "remcaps/capsule/routing/scaled_distance.h"

#include <cmath>

#include "remcaps/capsule/divided_batch.h"
#include "remcaps/capsule/routing/iterated.h"

namespace remcaps {
namespace {

// û <- min(||u_i||, ||û_ij||) û/||û||: a vote is never longer than its child. The factor is 1 for a
// vote that is short enough, so that a vote of length 0 is not divided by 0.
Tensor clamp_votes(const Tensor& votes, const Tensor& children) {
  const Tensor vote_length = votes.norm(2, -1);                    // [B, I, J]
  const Tensor child_length = children.norm(2, -1).unsqueeze(-1);  // [B, I, 1]
  const Tensor shrunk = child_length / vote_length.clamp_min(1e-12);
  const Tensor factor =
      torch::where(vote_length > child_length, shrunk, torch::ones_like(vote_length));
  return votes * factor.unsqueeze(-1);
}

// The mean over the whole batch, also where processes divide it.
Tensor batch_mean(const Tensor& distance) {
  ProcessGroup* group = DividedBatch::group();
  if (group == nullptr) return distance.mean();
  const int64_t values = DividedBatch::images() * distance.size(1) * distance.size(2);
  return sum_over_processes(distance.sum(), *group) / static_cast<double>(values);
}

// The logits t · d.
//   distance [B, I, J]  d_ij = ||v_j - û_ij||
Tensor distance_logits(const Tensor& distance, ScaledDistanceRouting::Mean mean) {
  const auto parents = static_cast<double>(distance.size(2));
  // A single parent gets everything. log(0.9 (J - 1)) has no value there.
  if (parents < 2) return torch::zeros_like(distance);
  const Tensor d_o = mean == ScaledDistanceRouting::Mean::kBatch
                         ? batch_mean(distance)
                         : distance.mean({1, 2}, /*keepdim=*/true);  // scalar or [B, 1, 1]
  const Tensor d_p = 0.5 * d_o;
  const Tensor t = (std::log(0.9 * (parents - 1)) - std::log(0.1)) / (d_p - d_o + 1e-12);
  return t * distance;
}

RoutingResult plain_scaled_distance_routing(const Tensor& children, const Tensor& weight,
                                            const Tensor& bias,
                                            const ScaledDistanceRouting& options,
                                            const RoutingRequest& request) {
  check_routing_inputs("scaled-distance", children, weight, bias, options.iterations);
  const bool full = wants_full_gradient(options.gradient);
  const Tensor votes = clamp_votes(make_votes(children, weight), children);  // [B, I, J, Dout]
  Tensor logits = zero_logits(votes);                                        // [B, I, J]
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    torch::AutoGradMode early_iterations_are_constants(torch::GradMode::is_enabled() &&
                                                       (full || last));
    Tensor coupling = torch::softmax(logits, /*dim=*/2);  // c_ij, [B, I, J]
    if (last) coupling = quantized(coupling, request);
    Tensor preactivation = weighted_sum(coupling, votes);  // s_j, [B, J, Dout]
    if (bias.defined() && bias_now(options.bias, last)) preactivation = preactivation + bias;
    const Tensor poses = options.squash(preactivation, {-1});  // v_j, [B, J, Dout]
    if (last) return {poses, coupling, {}};
    const Tensor distance = (poses.unsqueeze(1) - votes).norm(2, -1);  // [B, I, J]
    logits = distance_logits(distance, options.mean);                  // replaced, not added
  }
}

class ScaledDistanceAlgorithm final : public IteratedAlgorithm<ScaledDistanceRouting> {
 public:
  explicit ScaledDistanceAlgorithm(const ScaledDistanceRouting& options)
      : IteratedAlgorithm(options, "scaled-distance", "scaled_distance_routing") {}

  bool batch_dependent() const override {
    return options_.mean == ScaledDistanceRouting::Mean::kBatch;
  }
  bool divisible() const override { return true; }

  RoutingPtr configured(ConfigSection& keys) const override {
    ScaledDistanceRouting options = options_;
    bind_iterated(keys, options);
    keys.key("mean", options.mean, {"batch", "sample"});
    return options;
  }

 protected:
  Tensor votes(const Tensor& children, const Tensor& weight) const override {
    return clamp_votes(make_votes(children, weight), children);
  }
  Tensor added_bias(const Tensor& bias) const override { return bias; }
  RoutingResult run(const Tensor& children, const Tensor& weight, const Tensor& bias,
                    const RoutingRequest& request, const PackedMatrices*) const override {
    return scaled_distance_routing(children, weight, bias, options_, request);
  }
};

}  // namespace

ScaledDistanceRouting::operator RoutingPtr() const {
  return std::make_shared<ScaledDistanceAlgorithm>(*this);
}

RoutingResult scaled_distance_routing(const Tensor& children, const Tensor& weight,
                                      const Tensor& bias, const ScaledDistanceRouting& options,
                                      const RoutingRequest& request) {
  const bool batch = options.mean == ScaledDistanceRouting::Mean::kBatch;
  // The kernels do not know the other processes.
  const bool divided = batch && DividedBatch::group() != nullptr;
  if (divided || !wants_fused(options) || !has_fused_scaled_distance_routing(children, weight))
    return plain_scaled_distance_routing(children, weight, bias, options, request);
  const auto [poses, coupling] = fused_scaled_distance_routing(
      children, weight, options.bias == BiasUse::kNone ? Tensor() : bias,
      fused_options(options, request), batch ? DistanceMean::kBatch : DistanceMean::kImage);
  return {poses, coupling, {}};
}

}  // namespace remcaps
