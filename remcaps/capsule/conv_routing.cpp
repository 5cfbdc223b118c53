#include "remcaps/capsule/conv_routing.h"

#include "remcaps/base/error.h"

namespace remcaps {

RoutingResult conv_caps_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                                int64_t kernel, int64_t stride, const DynamicRouting& options,
                                const RoutingRequest& request) {
  check(children.dim() == 5 && weight.dim() == 4 &&
            weight.size(0) == children.size(1) * kernel * kernel,
        "ConvCaps routing: children [{}] and weight [{}]; expected [B, T, H, W, Din] and "
        "[T*{}*{}, J, Dout, Din]",
        fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "), kernel, kernel);
  const int64_t batch = children.size(0);
  const Tensor windows = children.unfold(2, kernel, stride)
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
  const int64_t batch = children.size(0), height = children.size(2), width = children.size(3);
  const int64_t types = children.size(1) / child_dim, parents = weight.size(0) / parent_dim;

  // The kernel steps from one input type to the next: depth T of its output is the input type.
  const Tensor votes =
      torch::conv3d(children.unsqueeze(1), weight, conv_bias, /*stride=*/{child_dim, 1, 1},
                    /*padding=*/{0, 1, 1})  // [B, J·Dout, T, H, W]
          .transpose(1, 2)
          .reshape({batch, types, parents, parent_dim, height, width});
  const Tensor early_votes = options.gradient == RoutingGradient::kLast ? votes.detach() : votes;
  const std::vector<int64_t> squashed = options.squash_over == Conv3dRouting::SquashOver::kAtoms
                                            ? std::vector<int64_t>{2}
                                            : std::vector<int64_t>{2, 3, 4};

  Tensor logits = torch::zeros({batch, types, parents, height, width}, votes.options());
  for (int64_t iteration = 1;; ++iteration) {
    const bool last = iteration == options.iterations;
    Tensor coupling = torch::softmax(logits.flatten(2), /*dim=*/2).view_as(logits);
    if (last && request.quantizer)
      coupling = request.quantizer->quantize(coupling).to(coupling.scalar_type());
    const Tensor& seen = last ? votes : early_votes;
    Tensor preactivation = (coupling.unsqueeze(3) * seen).sum(1);  // [B, J, Dout, H, W]
    if (bias.defined()) preactivation = preactivation + bias.view({parents, parent_dim, 1, 1});
    const Tensor poses = squash(preactivation, squashed, options.squash_epsilon);
    if (last) {
      const Tensor by_position = coupling.flatten(3).permute({0, 3, 1, 2});  // [B, P, T, J]
      return {poses, by_position, {}};
    }
    logits = logits + (seen * poses.unsqueeze(1)).sum(3);
  }
}

}  // namespace remcaps
