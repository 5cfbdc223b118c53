#include "remcaps/capsule/check.h"

#include <fmt/format.h>
#include <torch/autograd.h>

#include "remcaps/capsule/routing/conv3d.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/ops/routing.h"

namespace remcaps {
namespace {

struct RoutingCheck {
  int64_t batch, children, parents, child_dim, parent_dim;
  RoutingGradient gradient = RoutingGradient::kLast;
  double alive = 1.0;  ///< share of the blocks W_ij that are not zero
  bool quantize = false;
  bool by_distance = false;  ///< scaled-distance routing; else dynamic
};

std::string routing_shape(const RoutingCheck& c) {
  std::string text = fmt::format("{} x {} -> {}, {}D -> {}D", c.batch, c.children, c.parents,
                                 c.child_dim, c.parent_dim);
  if (c.gradient == RoutingGradient::kFull) text += ", full gradient";
  if (c.alive < 1) text += fmt::format(", {:.0f} % pruned", 100 * (1 - c.alive));
  if (c.quantize) text += ", K = 11";
  return text;
}

// Children, weight and bias.
std::vector<Tensor> routing_values(const RoutingCheck& c) {
  const Tensor children = torch::randn({c.batch, c.children, c.child_dim}) * 0.5;
  const Tensor weight = torch::randn({c.children, c.parents, c.parent_dim, c.child_dim}) * 0.2 *
                        (torch::rand({c.children, c.parents, 1, 1}) < c.alive);
  return {children, weight, torch::randn({c.parents, c.parent_dim}) * 0.1};
}

RoutingRequest request_of(const RoutingCheck& c) {
  RoutingRequest request;
  if (c.quantize) request.quantizer = Quantizer::uniform(11);
  return request;
}

// A coupling on the edge of two levels of the quantizer may fall to either side.
double pose_tolerance(const RoutingCheck& c) {
  return c.quantize ? 2e-2 : 1e-4;
}

double coupling_tolerance(const RoutingCheck& c) {
  return c.quantize ? 0.2 : 1e-4;
}

void check_routing(Checker& checker, const RoutingCheck& c) {
  const Leaves leaves = checker.leaves(routing_values(c));
  const Tensor direction = torch::randn({c.batch, c.parents, c.parent_dim});
  const RoutingRequest request = request_of(c);

  const auto run = [&](const std::vector<Tensor>& inputs, KernelPath kernels) {
    RoutingPtr routing = DynamicRouting{.gradient = c.gradient, .kernels = kernels};
    if (c.by_distance) routing = ScaledDistanceRouting{.gradient = c.gradient, .kernels = kernels};
    const RoutingResult result = routing->route(inputs[0], inputs[1], inputs[2], request);
    (result.poses * direction.to(result.poses.options())).sum().backward();
    return result;
  };
  const RoutingResult found = run(leaves.fused, KernelPath::kFused);
  const RoutingResult expected = run(leaves.plain, KernelPath::kReference);
  const std::string shape = routing_shape(c), name = c.by_distance ? "scaled distance" : "routing";
  checker.compare(name + ": poses", shape, found.poses, expected.poses, pose_tolerance(c));
  checker.compare(name + ": couplings", shape, found.coupling, expected.coupling,
                  coupling_tolerance(c));
  checker.compare_gradients(
      name, shape, leaves, {{"children's", 0}, {"weights'", 1}, {"biases'", 2}}, pose_tolerance(c));
}

// By packed matrices, which only the CPU has.
void check_few_images(Checker& checker, const RoutingCheck& c) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  const Leaves leaves = checker.leaves(routing_values(c));
  const PackedMatrices packed(leaves.fused[1]);
  const auto run = [&](const std::vector<Tensor>& inputs, KernelPath kernels) {
    return dynamic_routing(inputs[0], inputs[1], inputs[2], {.kernels = kernels}, request_of(c),
                           &packed);
  };
  const RoutingResult found = run(leaves.fused, KernelPath::kFused);
  const RoutingResult expected = run(leaves.plain, KernelPath::kReference);
  checker.compare("routing, few images: poses", routing_shape(c), found.poses, expected.poses,
                  pose_tolerance(c));
  checker.compare("routing, few images: couplings", routing_shape(c), found.coupling,
                  expected.coupling, coupling_tolerance(c));
}

void check_conv3d_routing(Checker& checker, int64_t batch, int64_t types, int64_t dim, int64_t side,
                          const Conv3dRouting& routing) {
  const Tensor children = torch::randn({batch, types * dim, side, side}) * 0.5;
  const Tensor weight = torch::randn({types * dim, 1, 3, 3, 3}) * 0.2;
  const Tensor conv_bias = torch::randn({types * dim}) * 0.1;
  const Tensor bias = torch::randn({types, dim}) * 0.1;
  const Tensor direction = torch::randn({batch, types, dim, side, side});
  const auto run = [&](const std::vector<Tensor>& inputs, KernelPath kernels) {
    Conv3dRouting options = routing;
    options.kernels = kernels;
    const RoutingResult result =
        conv3d_routing(inputs[0], inputs[1], inputs[2], inputs[3], dim, dim, options);
    (result.poses * direction.to(result.poses.options())).sum().backward();
    return result;
  };
  const Leaves leaves = checker.leaves({children, weight, conv_bias, bias});
  const RoutingResult found = run(leaves.fused, KernelPath::kFused);
  const RoutingResult expected = run(leaves.plain, KernelPath::kReference);
  const std::string shape =
      fmt::format("{} x {} types x {}D, {}x{}{}", batch, types, dim, side, side,
                  routing.gradient == RoutingGradient::kFull ? ", full gradient" : "");
  checker.compare("3-D routing: poses", shape, found.poses, expected.poses, 1e-4);
  checker.compare("3-D routing: couplings", shape, found.coupling, expected.coupling, 1e-4);
  checker.compare_gradients("3-D routing", shape, leaves,
                            {{"children's", 0}, {"weights'", 1}, {"biases'", 3}}, 1e-4);
}

void check_dynamic_routing(Checker& checker) {
  for (const RoutingCheck& c : {RoutingCheck{32, 288, 10, 8, 16},
                                {32, 288, 10, 8, 16, RoutingGradient::kFull},
                                {32, 288, 10, 8, 16, RoutingGradient::kLast, 0.2},
                                {32, 288, 10, 8, 16, RoutingGradient::kLast, 1.0, true},
                                {16, 160, 10, 8, 32},
                                {33, 16, 16, 8, 8},
                                {4, 36, 200, 8, 16},
                                {1, 100, 10, 8, 16},
                                {7, 31, 5, 5, 11, RoutingGradient::kFull}})
    check_routing(checker, c);
}

void check_scaled_distance_routing(Checker& checker) {
  for (const RoutingCheck& c :
       {RoutingCheck{32, 288, 32, 8, 8, RoutingGradient::kLast, 1.0, false, true},
        {33, 32, 10, 8, 16, RoutingGradient::kLast, 0.5, false, true},
        {32, 288, 32, 8, 8, RoutingGradient::kFull, 1.0, false, true},
        {33, 32, 10, 8, 16, RoutingGradient::kFull, 0.5, false, true}})
    check_routing(checker, c);
}

}  // namespace

std::vector<KernelCheck> kernel_checks() {
  std::vector<KernelCheck> checks = {
      {"dynamic routing", {"routing/dynamic_routing", "routing/steps"}, check_dynamic_routing},
      {"scaled-distance routing", {"routing/scaled_distance"}, check_scaled_distance_routing},
      {"dynamic routing of few images",
       {"routing/few_images"},
       [](Checker& checker) {
         check_few_images(checker, {1, 288, 10, 8, 16, RoutingGradient::kLast, 0.2});
         check_few_images(checker, {1, 160, 10, 8, 32, RoutingGradient::kLast, 1.0, true});
       }},
  };
  for (KernelCheck& check : op_checks()) checks.push_back(std::move(check));
  // Matrix products around the votes, without a kernel of its own.
  checks.push_back({"3-D routing", {}, [](Checker& checker) {
                      check_conv3d_routing(checker, 8, 32, 8, 4, {});
                      check_conv3d_routing(checker, 3, 5, 7, 3,
                                           {.gradient = RoutingGradient::kFull,
                                            .squash_over = Conv3dRouting::SquashOver::kMap});
                    }});
  return checks;
}

}  // namespace remcaps
