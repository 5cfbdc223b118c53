// remcaps check: every fused path against its plain twin on random inputs, on the machine at hand.
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "remcaps/base/error.h"
#include "remcaps/base/json.h"
#include "remcaps/capsule/conv_caps.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/ops/pointwise.h"
#include "remcaps/ops/routing.h"
#include "remcaps/ops/sparse_convolution.h"
#include "remcaps/ops/strip_convolution.h"
#include "remcaps/ops/update.h"
#include "remcaps/torch/runtime.h"

namespace remcaps::cli {
namespace {

struct Finding {
  std::string path;   ///< "dynamic routing, poses"
  std::string shape;  ///< of the problem
  double error = 0;   ///< largest difference, relative to the largest value of the plain result
  double tolerance = 0;

  bool passed() const { return error <= tolerance; }  // false for NaN
};

// The same values twice: leaves of the fused path's graph and of its plain twin's.
struct Leaves {
  std::vector<Tensor> fused, plain;
};

// Collects findings; plain results are float64 on the CPU.
class Checker {
 public:
  explicit Checker(torch::Device device) : device_(device) {}

  const torch::Device& device() const { return device_; }
  const std::vector<Finding>& findings() const { return findings_; }

  Leaves leaves(const std::vector<Tensor>& values) const {
    Leaves result;
    for (const Tensor& tensor : values) {
      result.fused.push_back(tensor.to(device_, torch::kFloat32).clone().requires_grad_());
      result.plain.push_back(tensor.to(torch::kFloat64).clone().requires_grad_());
    }
    return result;
  }

  void compare(const std::string& path, const std::string& shape, const Tensor& fused,
               const Tensor& plain, double tolerance) {
    const Tensor expected = plain.detach();
    const Tensor found = fused.detach().to(torch::kCPU, torch::kFloat64);
    const double largest = expected.abs().max().item<double>();
    const double difference = (found - expected).abs().max().item<double>();
    findings_.push_back({path, shape, difference / (largest + 1e-12), tolerance});
  }

  /// `named`: whose gradient ("weights'"), and which leaf that is.
  void compare_gradients(const std::string& path, const std::string& shape, const Leaves& leaves,
                         const std::vector<std::pair<std::string, size_t>>& named,
                         double tolerance) {
    for (const auto& [whose, leaf] : named)
      compare(fmt::format("{}: {} gradient", path, whose), shape, leaves.fused[leaf].grad(),
              leaves.plain[leaf].grad(), tolerance);
  }

 private:
  torch::Device device_;
  std::vector<Finding> findings_;
};

struct RoutingCase {
  int64_t batch, children, parents, child_dim, parent_dim;
  RoutingGradient gradient = RoutingGradient::kLast;
  double alive = 1.0;  ///< share of the blocks W_ij that are not pruned
  bool quantize = false;
  bool by_distance = false;  ///< scaled-distance routing; else dynamic
};

std::string shape_of(const RoutingCase& c) {
  std::string text = fmt::format("{} x {} -> {}, {}D -> {}D", c.batch, c.children, c.parents,
                                 c.child_dim, c.parent_dim);
  if (c.gradient == RoutingGradient::kFull) text += ", full gradient";
  if (c.alive < 1) text += fmt::format(", {:.0f} % pruned", 100 * (1 - c.alive));
  if (c.quantize) text += ", K = 11";
  return text;
}

// Children, weight and bias.
std::vector<Tensor> random_values(const RoutingCase& c) {
  const Tensor children = torch::randn({c.batch, c.children, c.child_dim}) * 0.5;
  const Tensor weight = torch::randn({c.children, c.parents, c.parent_dim, c.child_dim}) * 0.2 *
                        (torch::rand({c.children, c.parents, 1, 1}) < c.alive);
  return {children, weight, torch::randn({c.parents, c.parent_dim}) * 0.1};
}

RoutingRequest request_of(const RoutingCase& c) {
  RoutingRequest request;
  if (c.quantize) request.quantizer = Quantizer::uniform(11);
  return request;
}

// A coupling that lies on an edge of the quantizer may fall to either side.
double pose_tolerance(const RoutingCase& c) {
  return c.quantize ? 2e-2 : 1e-4;
}

double coupling_tolerance(const RoutingCase& c) {
  return c.quantize ? 0.2 : 1e-4;
}

void check_routing(Checker& checker, const RoutingCase& c) {
  const Leaves leaves = checker.leaves(random_values(c));
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
  const std::string shape = shape_of(c), name = c.by_distance ? "scaled distance" : "routing";
  checker.compare(name + ": poses", shape, found.poses, expected.poses, pose_tolerance(c));
  checker.compare(name + ": couplings", shape, found.coupling, expected.coupling,
                  coupling_tolerance(c));
  checker.compare_gradients(
      name, shape, leaves, {{"children's", 0}, {"weights'", 1}, {"biases'", 2}}, pose_tolerance(c));
}

// By packed matrices, on the CPU.
void check_few_images(Checker& checker, const RoutingCase& c) {
  if (!checker.device().is_cpu()) return;
  const torch::NoGradGuard no_grad;
  const Leaves leaves = checker.leaves(random_values(c));
  const PackedMatrices packed(leaves.fused[1]);
  const auto run = [&](const std::vector<Tensor>& inputs, KernelPath kernels) {
    return dynamic_routing(inputs[0], inputs[1], inputs[2], {.kernels = kernels}, request_of(c),
                           &packed);
  };
  const RoutingResult found = run(leaves.fused, KernelPath::kFused);
  const RoutingResult expected = run(leaves.plain, KernelPath::kReference);
  checker.compare("routing, few images: poses", shape_of(c), found.poses, expected.poses,
                  pose_tolerance(c));
  checker.compare("routing, few images: couplings", shape_of(c), found.coupling, expected.coupling,
                  coupling_tolerance(c));
}

void check_squash(Checker& checker, int64_t batch, int64_t types, int64_t dim, int64_t side) {
  const Tensor values = torch::randn({batch, types * dim, side, side});
  const Leaves leaves = checker.leaves({values});
  const Tensor found = fused_primary_squash(leaves.fused[0], types, dim, 1e-6);
  const Tensor expected = squash(leaves.plain[0].reshape({batch, types, dim, side * side}), {2})
                              .transpose(2, 3)
                              .reshape({batch, types * side * side, dim});
  found.pow(3).sum().backward();
  expected.pow(3).sum().backward();
  const std::string shape =
      fmt::format("{} x {} types x {}D, {}x{}", batch, types, dim, side, side);
  checker.compare("primary squash: capsules", shape, found, expected, 1e-5);
  checker.compare_gradients("primary squash", shape, leaves, {{"map's", 0}}, 1e-5);
}

// A map squashed where it lies, in the layout a GPU's convolutions leave it in.
void check_channel_squash(Checker& checker, int64_t batch, int64_t types, int64_t dim,
                          int64_t side) {
  const Tensor values =
      torch::randn({batch, types * dim, side, side}).contiguous(torch::MemoryFormat::ChannelsLast);
  const Leaves leaves = checker.leaves({values});
  const Squash squash{Squash::Form::kNorm, 1e-8};
  const Tensor found = squash_channels(leaves.fused[0], types, dim, squash, KernelPath::kFused);
  const Tensor expected =
      squash_channels(leaves.plain[0], types, dim, squash, KernelPath::kReference);
  found.pow(3).sum().backward();
  expected.pow(3).sum().backward();
  const std::string shape =
      fmt::format("{} x {} types x {}D, {}x{}", batch, types, dim, side, side);
  checker.compare("channel squash: map", shape, found, expected, 1e-5);
  checker.compare_gradients("channel squash", shape, leaves, {{"map's", 0}}, 1e-5);
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

void check_margin_loss(Checker& checker, int64_t batch, int64_t classes) {
  const Tensor values = torch::rand({batch, classes});
  const Tensor labels = torch::randint(classes, {batch}, torch::kInt64);
  const Leaves leaves = checker.leaves({values});
  const MarginOptions margins;
  const Tensor found = fused_margin_loss(leaves.fused[0], labels.to(checker.device()),
                                         margins.m_plus, margins.m_minus, margins.lambda);
  const Tensor expected = margin_loss(leaves.plain[0], labels, margins);
  found.backward();
  expected.backward();
  const std::string shape = fmt::format("{} x {} classes", batch, classes);
  checker.compare("margin loss: loss", shape, found, expected, 1e-5);
  checker.compare_gradients("margin loss", shape, leaves, {{"activations'", 0}}, 1e-5);
}

struct ConvolutionCase {
  int64_t batch, channels, side, filters, kernel, stride;
};

std::string shape_of(const ConvolutionCase& c) {
  return fmt::format("{} x {} channels {}x{}, {} of {}x{} s{}", c.batch, c.channels, c.side, c.side,
                     c.filters, c.kernel, c.kernel, c.stride);
}

// Map, weights and biases.
std::vector<Tensor> random_values(const ConvolutionCase& c) {
  const Tensor map = torch::randn({c.batch, c.channels, c.side, c.side});
  const Tensor weight = torch::randn({c.filters, c.channels, c.kernel, c.kernel}) * 0.05;
  return {map, weight, torch::randn({c.filters})};
}

// On the CPU; a GPU has strip convolutions and cuDNN.
void check_convolution(Checker& checker, const ConvolutionCase& c) {
  if (!checker.device().is_cpu()) return;
  const Leaves leaves = checker.leaves(random_values(c));
  const auto& [fused, plain] = leaves;
  const bool images = c.channels < 8;  // which need no gradient
  fused[0].requires_grad_(!images);
  plain[0].requires_grad_(!images);
  const Tensor found = fast_convolution(fused[0], fused[1], fused[2], {c.stride, c.stride});
  const Tensor expected = torch::conv2d(plain[0], plain[1], plain[2], c.stride);
  found.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  const std::string name = "convolution", shape = shape_of(c);
  checker.compare(name + ": map", shape, found, expected, 1e-5);
  if (!images) checker.compare_gradients(name, shape, leaves, {{"map's", 0}}, 1e-5);
  checker.compare_gradients(name, shape, leaves, {{"weights'", 1}, {"biases'", 2}}, 1e-5);
}

// By weights that were packed beforehand, on the CPU.
void check_packed_convolution(Checker& checker, const ConvolutionCase& c) {
  if (!checker.device().is_cpu()) return;
  const std::vector<Tensor> values = random_values(c);
  const PackedFilters packed(values[1]);
  checker.compare("packed convolution: map", shape_of(c),
                  fast_convolution(values[0], values[1], values[2], {c.stride, c.stride}, &packed),
                  torch::conv2d(values[0].to(torch::kFloat64), values[1].to(torch::kFloat64),
                                values[2].to(torch::kFloat64), c.stride),
                  1e-5);
}

// On a GPU, where its products are made in tf32 only if the process asked for it.
void check_strip_convolution(Checker& checker, const ConvolutionCase& c) {
  if (!checker.device().is_cuda()) return;
  const Leaves leaves = checker.leaves(random_values(c));
  const auto& [fused, plain] = leaves;
  const Tensor found =
      strip_convolution({.stride = {c.stride, c.stride}}, fused[0], fused[1], fused[2]);
  const Tensor expected = torch::conv2d(plain[0], plain[1], plain[2], c.stride);
  found.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  const std::string name = "strip convolution", shape = shape_of(c);
  checker.compare(name + ": map", shape, found, expected, 1e-5);
  checker.compare_gradients(name, shape, leaves, {{"map's", 0}, {"weights'", 1}, {"biases'", 2}},
                            1e-5);
}

// On a GPU; elsewhere libtorch adds it.
void check_channel_bias(Checker& checker, int64_t batch, int64_t channels, int64_t side) {
  if (!checker.device().is_cuda()) return;
  const Leaves leaves =
      checker.leaves({torch::randn({batch, channels, side, side}), torch::randn({channels})});
  const auto& [fused, plain] = leaves;
  const Tensor found =
      add_channel_bias(fused[0].clone(torch::MemoryFormat::ChannelsLast), fused[1]);
  const Tensor expected = plain[0] + plain[1].view({1, -1, 1, 1});
  found.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  const std::string shape = fmt::format("{} x {} channels {}x{}", batch, channels, side, side);
  checker.compare("channel bias: map", shape, found, expected, 1e-5);
  checker.compare_gradients("channel bias", shape, leaves, {{"map's", 0}, {"biases'", 1}}, 1e-5);
}

// Against the convolution of what was rounded. Only on a CPU that has it.
void check_bf16_convolution(Checker& checker, const ConvolutionCase& c) {
  if (!checker.device().is_cpu() || !cpu_has_bf16_convolution()) return;
  const std::vector<Tensor> values = random_values(c);
  const auto rounded = [](const Tensor& tensor) {
    return tensor.to(torch::kBFloat16).to(torch::kFloat64);
  };
  checker.compare("bf16 convolution: map", shape_of(c),
                  bf16_convolution(values[0], values[1], values[2], {c.stride, c.stride},
                                   /*relu=*/false),
                  torch::conv2d(rounded(values[0]), rounded(values[1]),
                                values[2].to(torch::kFloat64), c.stride),
                  1e-5);
}

// Of pruned weights, on the CPU.
void check_sparse_convolution(Checker& checker, const ConvolutionCase& c, double left) {
  if (!checker.device().is_cpu()) return;
  const std::vector<Tensor> values = random_values(c);
  const Tensor weight = values[1] * (torch::rand_like(values[1]) < left);
  checker.compare(
      fmt::format("sparse convolution, {:g} % left", 100 * left), shape_of(c),
      sparse_convolution(values[0], SparseWeights(weight), values[2], {c.stride, c.stride}, {0, 0},
                         /*relu=*/false),
      torch::conv2d(values[0].to(torch::kFloat64), weight.to(torch::kFloat64),
                    values[2].to(torch::kFloat64), c.stride),
      1e-5);
}

void check_update(Checker& checker, int64_t size) {
  const UpdateConstants constants;
  const double lr = 1e-3, lambda = 1e-4;
  const Tensor parameter = torch::randn({size}), gradient = torch::randn({size}) * 0.1;
  const Tensor dead = torch::rand({size}) < 0.5;
  UpdatedParameter fused;
  fused.parameter = parameter.to(checker.device()).clone();
  fused.gradient = gradient.to(checker.device());
  fused.first = torch::zeros_like(fused.parameter);
  fused.second = torch::zeros_like(fused.parameter);
  fused.dead = dead.to(checker.device());
  fused.shrink = true;
  fused_update({fused}, constants, step_numbers(lr, constants, 1, lambda, checker.device()));

  // After the first step both corrected moments are the gradient's own: m = g, v = g^2.
  const Tensor p = parameter.to(torch::kFloat64), g = gradient.to(torch::kFloat64);
  const Tensor shrunk = p - lambda * p * torch::relu(1 - g.abs());
  const Tensor expected = (shrunk - lr * g / (g.abs() + constants.eps)).masked_fill(dead, 0);
  checker.compare("update: LOBSTER, Adam, mask", fmt::format("{} weights", size), fused.parameter,
                  expected, 1e-6);
}

std::vector<Finding> check_all(torch::Device device, uint64_t seed) {
  torch::manual_seed(seed);
  Checker checker(device);
  for (const RoutingCase& c : {RoutingCase{32, 288, 10, 8, 16},
                               {32, 288, 10, 8, 16, RoutingGradient::kFull},
                               {32, 288, 10, 8, 16, RoutingGradient::kLast, 0.2},
                               {32, 288, 10, 8, 16, RoutingGradient::kLast, 1.0, true},
                               {16, 160, 10, 8, 32},
                               {33, 16, 16, 8, 8},
                               {4, 36, 200, 8, 16},
                               {1, 100, 10, 8, 16},
                               {7, 31, 5, 5, 11, RoutingGradient::kFull},
                               {32, 288, 32, 8, 8, RoutingGradient::kLast, 1.0, false, true},
                               {33, 32, 10, 8, 16, RoutingGradient::kLast, 0.5, false, true},
                               {32, 288, 32, 8, 8, RoutingGradient::kFull, 1.0, false, true},
                               {33, 32, 10, 8, 16, RoutingGradient::kFull, 0.5, false, true}})
    check_routing(checker, c);
  check_few_images(checker, {1, 288, 10, 8, 16, RoutingGradient::kLast, 0.2});
  check_few_images(checker, {1, 160, 10, 8, 32, RoutingGradient::kLast, 1.0, true});
  const ConvolutionCase first_layer{3, 1, 28, 256, 9, 1}, primary{3, 64, 20, 128, 9, 2};
  check_convolution(checker, first_layer);
  check_convolution(checker, primary);
  check_packed_convolution(checker, {1, 64, 20, 128, 9, 2});
  check_strip_convolution(checker, {3, 256, 20, 256, 9, 2});
  check_channel_bias(checker, 8, 256, 7);
  check_bf16_convolution(checker, first_layer);
  check_bf16_convolution(checker, primary);
  check_sparse_convolution(checker, first_layer, 0.4);
  check_sparse_convolution(checker, primary, 0.1);
  check_squash(checker, 16, 32, 8, 6);
  check_squash(checker, 3, 5, 7, 1);
  check_channel_squash(checker, 8, 128, 1, 16);
  check_channel_squash(checker, 8, 32, 4, 8);
  check_channel_squash(checker, 8, 32, 8, 4);
  check_channel_squash(checker, 3, 5, 7, 3);
  check_conv3d_routing(checker, 8, 32, 8, 4, {});
  check_conv3d_routing(
      checker, 3, 5, 7, 3,
      {.gradient = RoutingGradient::kFull, .squash_over = Conv3dRouting::SquashOver::kMap});
  check_margin_loss(checker, 128, 10);
  check_update(checker, 100'003);
  return checker.findings();
}

void print_table(const std::vector<Finding>& findings) {
  fmt::print("{:<32} {:<44} {:>9} {:>9}\n", "fused path", "shape", "error", "allowed");
  for (const Finding& finding : findings)
    fmt::print("{:<32} {:<44} {:>9.1e} {:>9.1e}  {}\n", finding.path, finding.shape, finding.error,
               finding.tolerance, finding.passed() ? "ok" : "FAILED");
}

nlohmann::json as_json(const std::vector<Finding>& findings, const std::string& device,
                       int64_t failed) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : findings)
    checks.push_back({{"path", finding.path},
                      {"shape", finding.shape},
                      {"error", finding.error},
                      {"tolerance", finding.tolerance},
                      {"pass", finding.passed()}});
  return {{"device", device}, {"checks", checks}, {"failed", failed}, {"pass", failed == 0}};
}

}  // namespace

void add_check(CLI::App& app) {
  struct Options {
    std::string device = default_device();
    uint64_t seed = 0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "check", "Compare every fused kernel with its plain twin on random inputs");
  command->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--seed", options->seed, "Of the random inputs")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->footer("Example:\n  remcaps check --device cpu");
  command->callback([options] {
    const std::vector<Finding> findings = check_all(parse_device(options->device), options->seed);
    const int64_t failed = std::count_if(findings.begin(), findings.end(),
                                         [](const Finding& finding) { return !finding.passed(); });
    if (options->json)
      fmt::print("{}\n", json_text(as_json(findings, options->device, failed)));
    else
      print_table(findings);
    check(failed == 0, "{} of {} fused results differ from the plain ones on {}", failed,
          findings.size(), options->device);
  });
}

}  // namespace remcaps::cli
