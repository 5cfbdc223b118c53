#include "remcaps/capsule/conv_routing.h"

#include "remcaps/base/error.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/torch/compat.h"

namespace remcaps {

namespace {

// The votes of Conv3D routing as routing needs them, in two forms that differ in rounding alone.
//   coupling [B, P, T, J]   poses [B, P, J, Dout]   P = H·W positions, row by row

// As they are defined: the convolution's output, [B, P, T, J, Dout].
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

// Never written. A vote is one product, û_tj = K_j x_t, of the 3-D kernel's K = depth · 9 numbers
// for parent j and the K numbers x_t it sees of child type t at a position; so
//   sum_t c_tj û_tj = K_j (sum_t c_tj x_t)   and   <û_tj, v_j> = <x_t, K_j^T v_j>,
// whose largest tensors are Dout times smaller than the votes. The convolution's bias is one more
// number of K_j, which meets a 1 in every x_t.
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

// Of one input type, over all output types and positions together.
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
    if (last && request.quantizer)
      coupling = quantize(coupling, *request.quantizer).to(coupling.scalar_type());
    const Votes& seen = last ? votes : early;
    Tensor preactivation = seen.weighted_sum(coupling);  // [B, P, J, Dout]
    if (bias.defined()) preactivation = preactivation + bias;
    const Tensor poses = squash(preactivation, squashed, options.squash_epsilon);
    if (last) return {poses, coupling, {}};
    logits = logits + seen.agreement(poses);
  }
}

}  // namespace

RoutingResult conv_caps_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                                int64_t kernel, int64_t stride, const DynamicRouting& options,
                                const RoutingRequest& request) {
  check(children.dim() == 5 && weight.dim() == 4 &&
            weight.size(0) == children.size(1) * kernel * kernel,
        "ConvCaps routing: children [{}] and weight [{}]; expected [B, T, H, W, Din] and "
        "[T*{}*{}, J, Dout, Din]",
        fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "), kernel, kernel);
  const NoCudaAutocast float32(children.device());
  const int64_t batch = children.size(0);
  const Tensor windows = (float32.was_on() ? children.to(torch::kFloat32) : children)
                             .unfold(2, kernel, stride)
                             .unfold(3, kernel, stride)       // [B, T, h, w, Din, k, k]
                             .permute({0, 2, 3, 1, 5, 6, 4})  // [B, h, w, T, k, k, Din]
                             .contiguous();
  const int64_t positions = windows.size(1) * windows.size(2);
  // A window is an image of its own to fully connected routing, with the same matrices for all.
  RoutingResult result =
      dynamic_routing(windows.view({batch * positions, weight.size(0), weight.size(3)}), weight,
                      bias, options, request);
  result.poses = result.poses.view({batch, positions, weight.size(1), weight.size(2)});
  if (result.coupling.defined())
    result.coupling = result.coupling.view({batch, positions, weight.size(0), weight.size(1)});
  return result;
}

Tensor window_map(int64_t types, int64_t height, int64_t width, int64_t kernel, int64_t stride) {
  return torch::arange(types * height * width, torch::kInt64)
      .view({types, height, width})
      .unfold(1, kernel, stride)
      .unfold(2, kernel, stride)  // [T, h, w, k, k]
      .permute({1, 2, 0, 3, 4})
      .reshape({-1, types * kernel * kernel});
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
