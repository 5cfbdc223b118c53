#include "remcaps/explain/faithfulness.h"

#include <torch/csrc/autograd/autograd.h>

#include "remcaps/base/error.h"

namespace remcaps {

Tensor pixel_order(const Tensor& maps, const Tensor& ties) {
  const Tensor values = maps.to(torch::kDouble).flatten(1);
  const Tensor scale = values.abs().amax(1, /*keepdim=*/true).clamp_min(1e-300);
  return (values / scale + 1e-9 * ties.flatten(1)).argsort(/*dim=*/1, /*descending=*/true);
}

PixelCurves pixel_curves(const std::function<Tensor(const Tensor&)>& lengths, const Tensor& images,
                         const Tensor& black, const Tensor& order, int64_t steps) {
  const int64_t pixels = images.size(2) * images.size(3);
  check(order.dim() == 2 && order.size(0) == images.size(0) && order.size(1) == pixels,
        "an order of [{}] pixels for images [{}]", fmt::join(order.sizes(), ", "),
        fmt::join(images.sizes(), ", "));
  const Tensor nothing = black.to(images.options()).expand_as(images);
  std::vector<Tensor> deletion, insertion;
  for (int64_t step = 0; step <= steps; ++step) {
    const Tensor taken =
        torch::zeros({images.size(0), pixels}, images.options().dtype(torch::kBool))
            .scatter_(1, order.slice(1, 0, pixels * step / steps), true)
            .view({-1, 1, images.size(2), images.size(3)});
    deletion.push_back(lengths(torch::where(taken, nothing, images)).to(torch::kDouble));
    insertion.push_back(lengths(torch::where(taken, images, nothing)).to(torch::kDouble));
  }
  return {torch::stack(deletion, 1), torch::stack(insertion, 1)};
}

Tensor area_under(const Tensor& curve) {
  return torch::trapezoid(curve, 1.0 / static_cast<double>(curve.size(1) - 1), /*dim=*/1);
}

Tensor grad_cam(CapsNet& model, const Tensor& images, const ForwardOptions& options, size_t layer,
                const Tensor& classes, Placement placement) {
  const torch::AutoGradMode with_gradients(true);
  ForwardOptions traced = options;
  traced.trace = true;
  const Forward forward = model.forward(images.detach().clone().requires_grad_(), traced);
  const RoutingTrace& trace = forward.routings.at(layer);
  const Tensor lengths = forward.activations.gather(1, classes.view({-1, 1}));
  const Tensor gradient = torch::autograd::grad({lengths.sum()}, {trace.children})[0];
  const Tensor poses = trace.children.detach();  // [B, I, D]
  const torch::NoGradGuard no_grad;
  Tensor map = torch::zeros({images.size(0), images.size(2), images.size(3)}, poses.options());
  for (const CapsuleGrid& grid : trace.grids) {
    Tensor cells = torch::zeros({images.size(0), grid.height, grid.width}, poses.options());
    for (int64_t d = 0; d < poses.size(2); ++d) {
      const Tensor weight = on_grid(gradient.select(2, d), grid).mean({2, 3}, /*keepdim=*/true);
      cells += (weight * on_grid(poses.select(2, d), grid)).sum(1);
    }
    CapsuleGrid one_type = row_major_grid(1, grid.height, grid.width);
    one_type.field = grid.field;
    map += place_on_image(cells.clamp_min(0).flatten(1), {one_type}, model.input(), placement);
  }
  return map;
}

}  // namespace remcaps
