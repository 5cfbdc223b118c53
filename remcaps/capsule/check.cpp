#include "remcaps/capsule/check.h"

#include <fmt/format.h>
#include <torch/autograd.h>

#include "remcaps/capsule/routing/conv3d.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/capsule/routing/self_attention.h"
#include "remcaps/kernels/convolution/grouped_convolution.h"
#include "remcaps/kernels/pointwise/maps.h"
#include "remcaps/kernels/routing/conv3d_routing.h"
#include "remcaps/kernels/routing/self_attention.h"
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

// The kernels below serve the runtime without libtorch: on the CPU, without gradients.

kernels::MapStrides dense_strides(const Tensor& map) {
  return {map.stride(0), map.stride(1), map.stride(2), map.stride(3)};
}

void check_grouped_convolution(Checker& checker, int64_t channels, int64_t groups) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  constexpr int64_t kBatch = 3, kSide = 11, kFilters = 16, kKernel = 5, kStride = 2;
  const auto [fused, plain] =
      checker.leaves({torch::randn({kBatch, channels, kSide, kSide}),
                      torch::randn({kFilters, channels / groups, kKernel, kKernel}) * 0.2,
                      torch::randn({kFilters})});
  const kernels::ConvolutionShape shape{.batch = kBatch,
                                        .height = kSide,
                                        .width = kSide,
                                        .channels = channels,
                                        .filters = kFilters,
                                        .kernel_height = kKernel,
                                        .kernel_width = kKernel,
                                        .stride_y = kStride,
                                        .stride_x = kStride,
                                        .padding_y = 1,
                                        .padding_x = 1};
  const Tensor found =
      torch::empty({kBatch, kFilters, shape.out_height(), shape.out_width()}, torch::kFloat32);
  kernels::cpu::grouped_convolution(shape, groups, dense_strides(fused[0]),
                                    fused[0].data_ptr<float>(), fused[1].data_ptr<float>(),
                                    fused[2].data_ptr<float>(), found.data_ptr<float>());
  checker.compare("grouped convolution: map",
                  fmt::format("{} x {} channels {}x{}, {} of {}x{} s{}, {} groups", kBatch,
                              channels, kSide, kSide, kFilters, kKernel, kKernel, kStride, groups),
                  found,
                  torch::conv2d(plain[0], plain[1], plain[2], kStride, /*padding=*/1,
                                /*dilation=*/1, groups),
                  1e-5);
}

void check_self_attention(Checker& checker, const RoutingCheck& c,
                          const SelfAttentionRouting& options) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> values = routing_values(c);
  values[2] = torch::randn({c.children, c.parents}) * 0.1;  // the prior
  const auto [fused, plain] = checker.leaves(values);
  const Tensor poses = torch::empty({c.batch, c.parents, c.parent_dim}, torch::kFloat32);
  const Tensor couplings = torch::empty({c.batch, c.children, c.parents}, torch::kFloat32);
  kernels::cpu::self_attention_forward(
      {c.batch, c.children, c.parents, c.child_dim, c.parent_dim},
      {.form = kernels::SquashForm::kExponential,
       .epsilon = static_cast<float>(options.squash.epsilon),
       .self = options.agreement == SelfAttentionRouting::Agreement::kSelf,
       .exact_prior = options.prior == SelfAttentionRouting::Prior::kExact,
       .levels = {}},
      fused[0].data_ptr<float>(), fused[1].data_ptr<float>(), fused[2].data_ptr<float>(),
      poses.data_ptr<float>(), couplings.data_ptr<float>());
  const RoutingResult expected = self_attention_routing(plain[0], plain[1], plain[2], options);
  checker.compare("self-attention: poses", routing_shape(c), poses, expected.poses, 1e-4);
  checker.compare("self-attention: couplings", routing_shape(c), couplings, expected.coupling,
                  1e-4);
}

void check_conv3d_kernel(Checker& checker, int64_t types, int64_t dim, int64_t side) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  constexpr int64_t kBatch = 2, kDepth = 3;
  const auto [fused, plain] =
      checker.leaves({torch::randn({kBatch, types * dim, side, side}) * 0.5,
                      torch::randn({types * dim, 1, kDepth, 3, 3}) * 0.2,
                      torch::randn({types * dim}) * 0.1, torch::randn({types, dim}) * 0.1});
  const Tensor poses = torch::empty({kBatch, types, dim, side, side}, torch::kFloat32);
  const Tensor couplings = torch::empty({kBatch, side * side, types, types}, torch::kFloat32);
  kernels::cpu::conv3d_routing_forward({.batch = kBatch,
                                        .height = side,
                                        .width = side,
                                        .types = types,
                                        .child_dim = dim,
                                        .parents = types,
                                        .parent_dim = dim,
                                        .depth = kDepth},
                                       {}, dense_strides(fused[0]), fused[0].data_ptr<float>(),
                                       fused[1].data_ptr<float>(), fused[2].data_ptr<float>(),
                                       fused[3].data_ptr<float>(), poses.data_ptr<float>(),
                                       couplings.data_ptr<float>());
  const RoutingResult expected = conv3d_routing(plain[0], plain[1], plain[2], plain[3], dim, dim,
                                                {.kernels = KernelPath::kReference});
  const std::string shape =
      fmt::format("{} x {} types x {}D, {}x{}", kBatch, types, dim, side, side);
  checker.compare("3-D routing kernel: poses", shape, poses, expected.poses, 1e-4);
  checker.compare("3-D routing kernel: couplings", shape, couplings, expected.coupling, 1e-4);
}

kernels::cpu::MapView view_of(const Tensor& map) {
  return {map.data_ptr<float>(), map.size(0), map.size(1),
          map.size(2),           map.size(3), dense_strides(map)};
}

void check_maps(Checker& checker, torch::MemoryFormat layout) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  constexpr int64_t kBatch = 3, kChannels = 10, kSide = 9;
  const std::string shape =
      fmt::format("{} x {} channels {}x{}{}", kBatch, kChannels, kSide, kSide,
                  layout == torch::MemoryFormat::ChannelsLast ? ", channels-last" : "");
  const auto [fused, plain] =
      checker.leaves({torch::randn({kBatch, kChannels, kSide, kSide}), torch::rand({kChannels}),
                      torch::randn({kChannels}), torch::randn({kBatch, kChannels, kSide, kSide})});
  const float *scale = fused[1].data_ptr<float>(), *shift = fused[2].data_ptr<float>();
  const auto channel = [](const Tensor& values) { return values.view({-1, 1, 1}); };
  // The kernels work in place, on a copy of the map in this layout.
  const auto changed = [&, &map = fused[0]](const auto& change) {
    const Tensor copy = map.clone(layout);
    change(view_of(copy));
    return copy;
  };
  checker.compare("maps: scale and shift", shape, changed([&](const auto& map) {
                    kernels::cpu::scale_and_shift(map, scale, shift);
                  }),
                  plain[0] * channel(plain[1]) + channel(plain[2]), 1e-5);
  checker.compare(
      "maps: instance norm", shape,
      changed([&](const auto& map) { kernels::cpu::instance_norm(map, scale, shift, 1e-6F); }),
      torch::instance_norm(plain[0], plain[1], plain[2], {}, {}, true, 0.1, 1e-6, false), 1e-5);
  checker.compare("maps: leaky ReLU", shape,
                  changed([&](const auto& map) { kernels::cpu::leaky_relu(map, 0.25F); }),
                  torch::leaky_relu(plain[0], 0.25), 1e-6);
  checker.compare("maps: sum", shape, changed([&, &other = fused[3]](const auto& map) {
                    kernels::cpu::add_map(view_of(other), map);
                  }),
                  plain[0] + plain[3], 1e-6);
  const Tensor padded = torch::empty({kBatch, kChannels, kSide + 2, kSide + 2}, torch::kFloat32);
  kernels::cpu::copy_map(view_of(fused[0].clone(layout)), view_of(padded));
  checker.compare("maps: copy", shape, padded, torch::constant_pad_nd(plain[0], {1, 1, 1, 1}), 0);
  const Tensor pooled = torch::empty({kBatch, kChannels, 5, 5}, torch::kFloat32);
  kernels::cpu::max_pool(view_of(fused[0].clone(layout)), 3, 2, 1, view_of(pooled));
  checker.compare("maps: max pool", shape, pooled, torch::max_pool2d(plain[0], 3, 2, 1), 1e-6);
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
  checks.push_back(
      {"grouped convolution", {"convolution/grouped_convolution"}, [](Checker& checker) {
         check_grouped_convolution(checker, /*channels=*/16, /*groups=*/16);
         check_grouped_convolution(checker, /*channels=*/6, /*groups=*/2);
       }});
  checks.push_back({"self-attention routing", {"routing/self_attention"}, [](Checker& checker) {
                      check_self_attention(checker, {5, 16, 10, 8, 16}, {});
                      check_self_attention(checker, {1, 33, 7, 5, 11}, {});
                      check_self_attention(checker, {5, 16, 10, 8, 16},
                                           {.agreement = SelfAttentionRouting::Agreement::kSelf,
                                            .prior = SelfAttentionRouting::Prior::kExact});
                    }});
  checks.push_back({"3-D routing kernel", {"routing/conv3d_routing"}, [](Checker& checker) {
                      check_conv3d_kernel(checker, 32, 8, 4);
                      check_conv3d_kernel(checker, 5, 7, 3);
                    }});
  checks.push_back({"maps", {"pointwise/maps"}, [](Checker& checker) {
                      check_maps(checker, torch::MemoryFormat::Contiguous);
                      check_maps(checker, torch::MemoryFormat::ChannelsLast);
                    }});
  return checks;
}

}  // namespace remcaps
