#include "remcaps/capsule/routing/window.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "remcaps/base/error.h"
#include "remcaps/capsule/routing/iterated.h"
#include "remcaps/torch/compat.h"

namespace remcaps {

RoutingResult conv_caps_routing(const Tensor& children, const Tensor& weight, const Tensor& bias,
                                int64_t kernel, int64_t stride, const DynamicRouting& options,
                                const RoutingRequest& request) {
  check(children.dim() == 5 && weight.dim() == 4 &&
            weight.size(0) == children.size(1) * kernel * kernel,
        "ConvCaps routing: children [{}] and weight [{}]; expected [B, T, H, W, Din] and "
        "[T*{}*{}, J, Dout, Din]",
        fmt::join(children.sizes(), ", "), fmt::join(weight.sizes(), ", "), kernel, kernel);
  check(stride >= 1 && kernel <= std::min(children.size(2), children.size(3)),
        "ConvCaps routing: windows of {}x{}, {} apart, in children [{}]; expected windows inside "
        "HxW, at least 1 apart",
        kernel, kernel, stride, fmt::join(children.sizes(), ", "));
  const NoCudaAutocast float32(children.device());
  const int64_t batch = children.size(0);
  const Tensor windows = (float32.was_on() ? children.to(torch::kFloat32) : children)
                             .unfold(2, kernel, stride)
                             .unfold(3, kernel, stride)       // [B, T, h, w, Din, k, k]
                             .permute({0, 2, 3, 1, 5, 6, 4})  // [B, h, w, T, k, k, Din]
                             .contiguous();
  const int64_t positions = windows.size(1) * windows.size(2);
  // Fully connected routing sees every window as an image. All of them have the same matrices.
  RoutingResult result = RoutingPtr(options)->route(
      windows.view({batch * positions, weight.size(0), weight.size(3)}), weight, bias, request);
  result.poses = result.poses.view({batch, positions, weight.size(1), weight.size(2)});
  for (Tensor* of_pairs : {&result.coupling, &result.contribution})
    if (of_pairs->defined())
      *of_pairs = of_pairs->view({batch, positions, weight.size(0), weight.size(1)});
  if (result.bias_contribution.defined())
    result.bias_contribution = result.bias_contribution.view({batch, positions, weight.size(1)});
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

RoutingCost conv_caps_cost(const RoutedLayer& window, int64_t positions,
                           const DynamicRouting& options) {
  const RoutingCost one = iterated_cost(window, options.iterations);
  return {.multiply_adds = positions * one.multiply_adds,
          .vote_floats = positions * one.vote_floats,
          // The windows overlap, so their children are copied.
          .activation_floats =
              positions * (one.activation_floats + window.children * window.child_dim)};
}

}  // namespace remcaps
