#include "remcaps/capsule/routing/conv3d.h"

#include <fmt/ranges.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/iterated.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace {

// Routing needs a weighted sum of the votes and their agreement with the poses. Two classes compute
// these; their results differ only by rounding.
//   coupling  [B, P, T, J]     P = H·W positions, row by row
//   poses     [B, P, J, Dout]

// The plain version: the votes are the convolution's output, [B, P, T, J, Dout].
class WrittenVotes {
 public:
  WrittenVotes(const Tensor& children, const Tensor& weight, const Tensor& conv_bias,
               int64_t child_dim, int64_t parent_dim)
      // The kernel steps from one input type to the next: depth T of its output is the input type.
      : votes_(torch::conv3d(children.unsqueeze(1), weight, conv_bias, /*stride=*/{child_dim, 1, 1},
                             /*padding=*/{0, 1, 1})  // [B, J·Dout, T, H, W]
                   .flatten(3)                       // [B, J·Dout, T, P]
                   .permute({0, 3, 2, 1})            // [B, P, T, J·Dout]
                   .unflatten(3, {-1, parent_dim})) {}

  Tensor no_logits() const { return torch::zeros(votes_.sizes().slice(0, 4), votes_.options()); }
  Tensor weighted_sum(const Tensor& coupling) const {
    return (coupling.unsqueeze(4) * votes_).sum(2);
  }
  Tensor agreement(const Tensor& poses) const { return (votes_ * poses.unsqueeze(2)).sum(4); }
  WrittenVotes as_constants() const { return WrittenVotes(votes_.detach()); }

 private:
  explicit WrittenVotes(Tensor votes) : votes_(std::move(votes)) {}
  Tensor votes_;
};

// The fast version never writes the votes to memory. A vote is a product û_tj = K_j x_t, where
// K_j [Dout, K] is the 3-D kernel of parent j, and x_t [K] are the K = depth · 9 numbers that the
// kernel sees of child type t at a position. Therefore
//   sum_t c_tj û_tj = K_j (sum_t c_tj x_t)
//   <û_tj, v_j>     = <x_t, K_j^T v_j>
// and the largest tensors are Dout times smaller than the votes. The bias of the convolution is one
// more column of K_j; every x_t gets a 1 in that place.
class ImpliedVotes {
 public:
  ImpliedVotes(const Tensor& children, const Tensor& weight, const Tensor& conv_bias,
               int64_t child_dim, int64_t parent_dim)
      : batch_(children.size(0)) {
    const int64_t depth = weight.size(2);
    Tensor seen = torch::constant_pad_nd(children.unflatten(1, {-1, child_dim}).narrow(2, 0, depth),
                                         {1, 1, 1, 1})
                      .unfold(3, 3, 1)
                      .unfold(4, 3, 1)                                 // [B, T, depth, H, W, 3, 3]
                      .permute({0, 3, 4, 1, 2, 5, 6})                  // [B, H, W, T, depth, 3, 3]
                      .flatten(4)                                      // [B, H, W, T, K]
                      .flatten(0, 2);                                  // [B·P, T, K]
    Tensor kernel = weight.flatten(1).unflatten(0, {-1, parent_dim});  // [J, Dout, K]
    if (conv_bias.defined()) {
      seen = torch::constant_pad_nd(seen, {0, 1}, 1.0);
      kernel = torch::cat({kernel, conv_bias.view({-1, parent_dim, 1})}, 2);
    }
    seen_ = seen;
    kernel_ = kernel;
  }

  Tensor no_logits() const {
    return torch::zeros({batch_, seen_.size(0) / batch_, seen_.size(1), kernel_.size(0)},
                        seen_.options());
  }
  Tensor weighted_sum(const Tensor& coupling) const {
    const Tensor mixed = torch::bmm(coupling.flatten(0, 1).transpose(1, 2), seen_);  // [B·P, J, K]
    return torch::bmm(mixed.transpose(0, 1), kernel_.transpose(1, 2))                // [J, B·P, D]
        .transpose(0, 1)
        .unflatten(0, {batch_, -1});
  }
  Tensor agreement(const Tensor& poses) const {
    const Tensor wanted = torch::bmm(poses.flatten(0, 1).transpose(0, 1), kernel_);  // [J, B·P, K]
    return torch::bmm(seen_, wanted.permute({1, 2, 0})).unflatten(0, {batch_, -1});
  }
  ImpliedVotes as_constants() const {
    ImpliedVotes constants = *this;
    constants.seen_ = seen_.detach();
    constants.kernel_ = kernel_.detach();
    return constants;
  }

 private:
  int64_t batch_;
  Tensor seen_;    // x_t, [B·P, T, K]
  Tensor kernel_;  // K_j, [J, Dout, K]
};

// For each input type: over all output types and positions together.
//   logits [B, P, T, J]
Tensor softmax_over_map(const Tensor& logits) {
  const Tensor by_type = logits.transpose(1, 2);  // [B, T, P, J]
  return torch::softmax(by_type.flatten(2), /*dim=*/2).view(by_type.sizes()).transpose(1, 2);
}

// Returns the poses as [B, P, J, Dout].
template <typename Votes>
RoutingResult agree_on_map(const Votes& votes, const Tensor& bias, const Conv3dRouting& options,
                           const RoutingRequest& request) {
  const Votes early = options.gradient == RoutingGradient::kLast ? votes.as_constants() : votes;
  const std::vector<int64_t> squashed = options.squash_over == Conv3dRouting::SquashOver::kAtoms
                                            ? std::vector<int64_t>{3}
                                            : std::vector<int64_t>{1, 3};
  Tensor logits = votes.no_logits();
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    Tensor coupling = softmax_over_map(logits);
    if (last) coupling = quantized(coupling, request);
    const Votes& seen = last ? votes : early;
    Tensor preactivation = seen.weighted_sum(coupling);  // [B, P, J, Dout]
    if (bias.defined()) preactivation = preactivation + bias;
    const Tensor poses = squash(preactivation, squashed, options.squash_epsilon);
    if (last) {
      RoutingResult result{poses, coupling, {}};
      if (request.contributions) {
        const torch::NoGradGuard no_grad;
        const Tensor direction = direction_of(preactivation);
        result.contribution = coupling * seen.agreement(direction);  // [B, P, T, J]
        result.bias_contribution = bias.defined() ? (bias * direction).sum(-1)
                                                  : torch::zeros_like(direction.select(-1, 0));
      }
      return result;
    }
    logits = logits + seen.agreement(poses);
  }
}

}  // namespace

void bind(ConfigSection& keys, Conv3dRouting& options) {
  bind_iterations(keys, options.iterations, options.gradient);
  keys.key("squash_over", options.squash_over, {"atoms", "map"});
}

RoutingCost conv3d_cost(int64_t types, int64_t dim, int64_t depth, int64_t positions,
                        const Conv3dRouting& options) {
  const int64_t pairs = types * types * positions;
  const int64_t votes = types * dim * depth * 9 * types * positions;
  return {.multiply_adds = votes + pairs * dim * (2 * options.iterations - 1),
          .vote_floats = pairs * dim,
          .activation_floats = pairs + types * dim * positions};
}

RoutingResult conv3d_routing(const Tensor& children, const Tensor& weight, const Tensor& conv_bias,
                             const Tensor& bias, int64_t child_dim, int64_t parent_dim,
                             const Conv3dRouting& options, const RoutingRequest& request) {
  check(children.dim() == 4 && weight.dim() == 5 && children.size(1) % child_dim == 0 &&
            weight.size(0) % parent_dim == 0 && weight.size(2) <= child_dim,
        "Conv3D routing: children [{}] and weight [{}]; expected [B, T*{}, H, W] and "
        "[J*{}, 1, depth, 3, 3] with depth up to {}",
        fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "), child_dim, parent_dim,
        child_dim);
  const NoCudaAutocast float32(children.device());
  const Tensor poses = float32.was_on() ? children.to(torch::kFloat32) : children;
  RoutingResult result =
      options.kernels == KernelPath::kFused
          ? agree_on_map(ImpliedVotes(poses, weight, conv_bias, child_dim, parent_dim), bias,
                         options, request)
          : agree_on_map(WrittenVotes(poses, weight, conv_bias, child_dim, parent_dim), bias,
                         options, request);
  result.poses = result.poses
                     .permute({0, 2, 3, 1})  // [B, J, Dout, P]
                     .unflatten(3, {children.size(2), children.size(3)});
  return result;
}

}  // namespace remcaps
