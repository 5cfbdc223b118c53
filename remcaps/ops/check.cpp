#include "remcaps/ops/check.h"

#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/kernels/convolution/int8_convolution.h"
#include "remcaps/kernels/convolution/lane_convolution.h"
#include "remcaps/kernels/simd/buffer.h"
#include "remcaps/ops/batch.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/convolution.h"
#include "remcaps/ops/margin_loss.h"
#include "remcaps/ops/squash.h"
#include "remcaps/ops/update.h"

namespace remcaps {
namespace {

struct ConvolutionSizes {
  int64_t batch, channels, side, filters, kernel, stride;
};
constexpr ConvolutionSizes kFirstLayer{3, 1, 28, 256, 9, 1}, kPrimaryLayer{3, 64, 20, 128, 9, 2};
constexpr ConvolutionSizes kOneImage{1, 64, 20, 128, 9, 2}, kOneDigit{1, 1, 28, 256, 9, 1};
constexpr ConvolutionSizes kManyChannels{3, 256, 20, 256, 9, 2};

kernels::ConvolutionShape shape_of(const ConvolutionSizes& c) {
  return {.batch = c.batch,
          .height = c.side,
          .width = c.side,
          .channels = c.channels,
          .filters = c.filters,
          .kernel_height = c.kernel,
          .kernel_width = c.kernel,
          .stride_y = c.stride,
          .stride_x = c.stride};
}

std::string text_of(const ConvolutionSizes& c) {
  return fmt::format("{} x {} channels {}x{}, {} of {}x{} s{}", c.batch, c.channels, c.side, c.side,
                     c.filters, c.kernel, c.kernel, c.stride);
}

struct ConvolutionCheck {
  std::string name;
  ConvolutionSizes sizes;
  bool gradients = true;     ///< false: the path is for passes without gradients
  bool bf16_inputs = false;  ///< the path rounds map and weight to bfloat16
  bool packed = false;       ///< the weight is packed
  double left = 1;           ///< share of the weights that are not zero
  double tolerance = 1e-5;
};

void check_convolution(Checker& checker, ConvolutionPath path, const ConvolutionCheck& c) {
  const torch::AutoGradMode grad_mode(c.gradients);
  const auto [batch, channels, side, filters, kernel, stride] = c.sizes;
  const Tensor weight = torch::randn({filters, channels, kernel, kernel}) * 0.05;
  std::vector<Tensor> values = {torch::randn({batch, channels, side, side}),
                                weight * (torch::rand_like(weight) < c.left),
                                torch::randn({filters})};
  if (c.bf16_inputs)
    for (size_t i : {0, 1}) values[i] = values[i].to(torch::kBFloat16).to(torch::kFloat32);
  const Leaves leaves = checker.leaves(values);
  const auto& [fused, plain] = leaves;
  const bool is_image = channels < 8;  // images need no gradient
  fused[0].requires_grad_(!is_image);
  plain[0].requires_grad_(!is_image);
  ConvolutionLayer layer{.weight = fused[1], .bias = fused[2], .stride = {stride, stride}};
  std::optional<PackedFilters> packed;
  std::optional<SparseWeights> sparse;
  if (path == ConvolutionPath::kPanels && c.packed && checker.device().is_cpu())
    layer.filters = &packed.emplace(fused[1]);
  if (path == ConvolutionPath::kSparse && checker.device().is_cpu())
    layer.sparse = &sparse.emplace(fused[1]);
  if (!has_kernel(path, facts_of(fused[0], layer, KernelPath::kFused))) return;

  const Tensor found = convolution_by(path, fused[0], layer);
  const Tensor expected = torch::conv2d(plain[0], plain[1], plain[2], stride);
  const std::string shape = text_of(c.sizes);
  checker.compare(c.name + ": map", shape, found, expected, c.tolerance);
  if (!c.gradients) return;
  found.to(torch::kFloat32).pow(2).sum().backward();
  expected.pow(2).sum().backward();
  if (!is_image) checker.compare_gradients(c.name, shape, leaves, {{"map's", 0}}, c.tolerance);
  checker.compare_gradients(c.name, shape, leaves, {{"weights'", 1}, {"biases'", 2}}, c.tolerance);
}

struct PathChecks {
  std::vector<std::string> kernels;
  std::vector<ConvolutionCheck> cases;
};

// A path without cases here does not compile.
PathChecks checks_of(ConvolutionPath path) {
  switch (path) {
    case ConvolutionPath::kPlain:
      return {};
    case ConvolutionPath::kPanels: {
      const std::string name = "convolution", packed = "packed convolution";
      return {{"convolution/convolution", "convolution/tile_product"},
              {{.name = name, .sizes = kFirstLayer},
               {.name = name, .sizes = kPrimaryLayer},
               {.name = packed, .sizes = kOneDigit, .gradients = false, .packed = true},
               {.name = packed, .sizes = kOneImage, .gradients = false, .packed = true}}};
    }
    case ConvolutionPath::kBf16Tiles: {
      const std::string name = "bf16 convolution";
      return {{"convolution/bf16_convolution", "convolution/bf16_tiles"},
              {{.name = name, .sizes = kFirstLayer, .gradients = false, .bf16_inputs = true},
               {.name = name, .sizes = kPrimaryLayer, .gradients = false, .bf16_inputs = true}}};
    }
    case ConvolutionPath::kSparse: {
      const std::string some = "sparse convolution, 40 % left",
                        few = "sparse convolution, 10 % left";
      return {{"convolution/sparse_convolution"},
              {{.name = some, .sizes = kFirstLayer, .gradients = false, .left = 0.4},
               {.name = few, .sizes = kPrimaryLayer, .gradients = false, .left = 0.1}}};
    }
    case ConvolutionPath::kPixels:
      return {{"convolution/pixel_layer"}, {{.name = "pixel layer", .sizes = kFirstLayer}}};
    case ConvolutionPath::kStrips:
      // Its products are tf32 only if the process asks for it.
      return {{"convolution/strip_convolution", "convolution/layout"},
              {{.name = "strip convolution", .sizes = kManyChannels}}};
    case ConvolutionPath::kTensorCores:
      return {{"convolution/layout", "convolution/channel_bias"},
              {{.name = "tensor-core convolution",
                .sizes = kPrimaryLayer,
                .bf16_inputs = true,
                .tolerance = 2e-2}}};
  }
  fail("check: no convolution path {}", static_cast<int>(path));
}

// On a CPU with a lane for each of 16 images.
void check_lanes(Checker& checker, ConvolutionSizes c, double left) {
  c.batch = kernels::cpu::kLaneImages;
  const kernels::ConvolutionShape shape = shape_of(c);
  if (!checker.device().is_cpu() || !kernels::cpu::LaneWeights::can_be_made(shape)) return;
  const Tensor map = torch::randn({c.batch, c.channels, c.side, c.side});
  Tensor weight = torch::randn({c.filters, c.channels, c.kernel, c.kernel}) * 0.05;
  weight *= torch::rand_like(weight) < left;
  const Tensor bias = torch::randn({c.filters});
  const int64_t side = shape.out_height();
  const kernels::Buffer out(c.filters * side * side * c.batch);
  const int64_t pixels = c.side * c.side;
  const kernels::cpu::SparseWeights sparse(shape, weight.data_ptr<float>());
  kernels::cpu::lane_convolution(shape, {c.channels * pixels, pixels, c.side, 1},
                                 map.data_ptr<float>(), kernels::cpu::LaneWeights(shape, sparse),
                                 bias.data_ptr<float>(), /*relu=*/false, out.get());
  checker.compare(
      "sparse convolution in lanes: map", text_of(c),
      torch::from_blob(out.get(), {c.filters, side, side, c.batch}).permute({3, 0, 1, 2}),
      torch::conv2d(map, weight, bias, c.stride), 1e-5);
}

// On a CPU that multiplies bytes. The plain twin's sums are as exact as the kernel's.
void check_bytes(Checker& checker, const ConvolutionSizes& c) {
  if (!checker.device().is_cpu() || kernels::byte_product() == nullptr) return;
  const kernels::ConvolutionShape shape = shape_of(c);
  const Tensor map = torch::rand({c.batch, c.side, c.side, c.channels});
  const Tensor weight =
      torch::randint(-127, 128, {c.filters, c.channels, c.kernel, c.kernel}, torch::kInt8);
  const int8_t* bytes = weight.data_ptr<int8_t>();
  const kernels::cpu::ByteFilters filters(shape, {bytes, bytes + weight.numel()},
                                          std::vector<float>(c.filters, 0.01F));
  const int64_t row = c.side * c.channels;
  const kernels::cpu::MapView view{map.data_ptr<float>(),
                                   c.batch,
                                   c.channels,
                                   c.side,
                                   c.side,
                                   {row * c.side, 1, row, c.channels}};
  const auto by = [&](kernels::ByteProduct product) {
    Tensor out = torch::empty({shape.places(), c.filters});
    kernels::cpu::byte_convolution(shape, view, filters, nullptr, /*relu=*/false, product,
                                   out.data_ptr<float>());
    return out.to(torch::kFloat64);
  };
  checker.compare("byte convolution: map", text_of(c), by(kernels::byte_product()),
                  by(kernels::plain_byte_product()), 0);
}

// On a GPU. On a CPU libtorch adds the bias.
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

std::string squash_shape(int64_t batch, int64_t types, int64_t dim, int64_t side) {
  return fmt::format("{} x {} types x {}D, {}x{}", batch, types, dim, side, side);
}

void check_capsule_squash(Checker& checker, int64_t batch, int64_t types, int64_t dim,
                          int64_t side) {
  const Leaves leaves = checker.leaves({torch::randn({batch, types * dim, side, side})});
  const Tensor found =
      squash_to_capsules(leaves.fused[0], types, dim, Squash{}, KernelPath::kFused);
  const Tensor expected =
      squash_to_capsules(leaves.plain[0], types, dim, Squash{}, KernelPath::kReference);
  found.pow(3).sum().backward();
  expected.pow(3).sum().backward();
  const std::string shape = squash_shape(batch, types, dim, side);
  checker.compare("primary squash: capsules", shape, found, expected, 1e-5);
  checker.compare_gradients("primary squash", shape, leaves, {{"map's", 0}}, 1e-5);
}

// In the layout in which a GPU's convolutions leave their maps.
void check_channel_squash(Checker& checker, int64_t batch, int64_t types, int64_t dim,
                          int64_t side) {
  const Leaves leaves = checker.leaves({torch::randn({batch, types * dim, side, side})
                                            .contiguous(torch::MemoryFormat::ChannelsLast)});
  const Squash squash{Squash::Form::kNorm, 1e-8};
  const Tensor found = squash_channels(leaves.fused[0], types, dim, squash, KernelPath::kFused);
  const Tensor expected =
      squash_channels(leaves.plain[0], types, dim, squash, KernelPath::kReference);
  found.pow(3).sum().backward();
  expected.pow(3).sum().backward();
  const std::string shape = squash_shape(batch, types, dim, side);
  checker.compare("channel squash: map", shape, found, expected, 1e-5);
  checker.compare_gradients("channel squash", shape, leaves, {{"map's", 0}}, 1e-5);
}

void check_margin_loss(Checker& checker, int64_t batch, int64_t classes) {
  const Leaves leaves = checker.leaves({torch::rand({batch, classes})});
  const Tensor labels = torch::randint(classes, {batch}, torch::kInt64);
  const Tensor found = fused_margin_loss(leaves.fused[0], labels.to(checker.device()));
  const Tensor expected = margin_loss(leaves.plain[0], labels);
  found.backward();
  expected.backward();
  const std::string shape = fmt::format("{} x {} classes", batch, classes);
  checker.compare("margin loss: loss", shape, found, expected, 1e-5);
  checker.compare_gradients("margin loss", shape, leaves, {{"activations'", 0}}, 1e-5);
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

  // After the first step both corrected moments are those of the gradient: m = g, v = g^2.
  const Tensor p = parameter.to(torch::kFloat64), g = gradient.to(torch::kFloat64);
  const Tensor shrunk = p - lambda * p * torch::relu(1 - g.abs());
  const Tensor expected = (shrunk - lr * g / (g.abs() + constants.eps)).masked_fill(dead, 0);
  checker.compare("update: LOBSTER, Adam, mask", fmt::format("{} weights", size), fused.parameter,
                  expected, 1e-6);
}

// Image `index` of [N, C, H, W], shifted and flipped as drawn, with zeros moving in.
Tensor moved_image(const Tensor& images, const EpochDraws& draws, int64_t index, int64_t shift) {
  const auto offset = [&](const Tensor& uniform) {
    const auto sides = static_cast<float>(2 * shift + 1);
    return static_cast<int64_t>(std::floor(uniform[index].item<float>() * sides));
  };
  const Tensor moved = torch::constant_pad_nd(images[index], {shift, shift, shift, shift})
                           .narrow(1, offset(draws.row), images.size(2))
                           .narrow(2, offset(draws.column), images.size(3));
  return draws.flip[index].item<float>() >= 0.5F ? moved.flip({2}) : moved;
}

// On a GPU, which alone has this kernel.
void check_batch(Checker& checker, int64_t batch, int64_t channels, int64_t side) {
  const int64_t count = 3 * batch;
  const Tensor bytes = torch::randint(256, {count, channels, side, side}, torch::kUInt8);
  const Tensor labels = torch::randint(10, {count}, torch::kInt64);
  const Tensor draws = torch::rand({3, count});
  const EpochDraws epoch{torch::randperm(count, torch::kInt64), draws[0], draws[1], draws[2]};
  const auto on_device = [&](const Tensor& tensor) { return tensor.to(checker.device()); };
  if (!has_fused_batch(on_device(bytes))) return;
  const PixelAugment augment{.shift = 2, .flip = true, .mean = {0.5}, .deviation = {0.3}};
  const FusedBatch trained = fused_batch(
      on_device(bytes), on_device(labels),
      {on_device(epoch.order), on_device(draws[0]), on_device(draws[1]), on_device(draws[2])},
      on_device(torch::ones({1}, torch::kInt64)), batch, augment);
  const FusedBatch evaluated =
      fused_evaluation_batch(on_device(bytes), on_device(labels), batch, batch, augment);

  const auto normalised = [](const Tensor& images) {
    return (images.to(torch::kFloat64) / 255 - 0.5) / 0.3;
  };
  const Tensor chosen = epoch.order.narrow(0, batch, batch);
  std::vector<Tensor> moved;
  for (int64_t i = 0; i < batch; ++i)
    moved.push_back(moved_image(bytes, epoch, chosen[i].item<int64_t>(), augment.shift));
  const std::string shape = fmt::format("{} x {} channels {}x{}", batch, channels, side, side);
  checker.compare("training batch: images", shape, trained.images, normalised(torch::stack(moved)),
                  1e-5);
  checker.compare("training batch: labels", shape, trained.labels,
                  labels.index_select(0, chosen).to(torch::kFloat64), 0);
  checker.compare("evaluation batch: images", shape, evaluated.images,
                  normalised(bytes.narrow(0, batch, batch)), 1e-5);
}

// On a GPU, which alone has this kernel.
void check_sums(Checker& checker, int64_t batch, int64_t classes) {
  const Tensor activations = torch::rand({batch, classes}), loss = activations.mean();
  const Tensor labels = torch::randint(classes, {batch}, torch::kInt64);
  const Tensor given = activations.to(checker.device()), given_loss = loss.to(checker.device());
  const Tensor given_labels = labels.to(checker.device());
  if (!has_fused_sums(given_loss, given)) return;
  const Tensor loss_sum = torch::zeros({}, given.options().dtype(torch::kFloat64));
  const Tensor correct = torch::zeros({}, given_labels.options());
  const Tensor step = torch::ones({1}, given_labels.options()), bad_step = correct + 99;
  const Tensor batch_loss = torch::zeros_like(given_loss);
  const Tensor confusion = torch::zeros({classes * classes}, given_labels.options());
  add_to_fused_sums(given_loss, given, given_labels, step, loss_sum, correct, bad_step);
  add_to_fused_evaluation(given_loss, given, given_labels, batch_loss, confusion);
  // The same from totals, as several processes do it.
  const Tensor loss_of_totals = torch::zeros_like(loss_sum);
  const Tensor correct_of_totals = torch::zeros_like(correct), bad_of_totals = bad_step.clone();
  const Tensor totals = fused_totals(given_loss, given, given_labels);
  add_fused_totals(totals, batch, step, loss_of_totals, correct_of_totals, bad_of_totals);
  add_fused_totals(totals / 0, batch, step, loss_of_totals.clone(), correct_of_totals.clone(),
                   bad_of_totals);

  const Tensor answers = activations.argmax(1);
  const Tensor cells =
      torch::zeros({classes * classes}, torch::kFloat64)
          .scatter_add_(0, labels * classes + answers, torch::ones({batch}, torch::kFloat64));
  const std::string shape = fmt::format("{} x {} classes", batch, classes);
  checker.compare("sums: loss", shape, loss_sum,
                  loss.to(torch::kFloat64) * static_cast<double>(batch), 1e-6);
  checker.compare("sums: right answers", shape, correct,
                  (answers == labels).sum().to(torch::kFloat64), 0);
  checker.compare("sums: confusion", shape, confusion, cells, 0);
  checker.compare("sums: loss of totals", shape, loss_of_totals, loss_sum.cpu(), 0);
  checker.compare("sums: right answers of totals", shape, correct_of_totals,
                  correct.cpu().to(torch::kFloat64), 0);
  checker.compare("sums: step of a bad total", shape, bad_of_totals, step.cpu().to(torch::kFloat64),
                  0);
}

}  // namespace

Leaves Checker::leaves(const std::vector<Tensor>& values) const {
  Leaves result;
  for (const Tensor& tensor : values) {
    result.fused.push_back(tensor.to(device_, torch::kFloat32).clone().requires_grad_());
    result.plain.push_back(tensor.to(torch::kFloat64).clone().requires_grad_());
  }
  return result;
}

void Checker::compare(const std::string& path, const std::string& shape, const Tensor& fused,
                      const Tensor& plain, double tolerance) {
  const Tensor expected = plain.detach();
  const Tensor found = fused.detach().to(torch::kCPU, torch::kFloat64);
  const double largest = expected.abs().max().item<double>();
  const double difference = (found - expected).abs().max().item<double>();
  findings_.push_back({path, shape, difference / (largest + 1e-12), tolerance});
}

void Checker::compare_gradients(const std::string& path, const std::string& shape,
                                const Leaves& leaves,
                                const std::vector<std::pair<std::string, size_t>>& named,
                                double tolerance) {
  for (const auto& [whose, leaf] : named)
    compare(fmt::format("{}: {} gradient", path, whose), shape, leaves.fused[leaf].grad(),
            leaves.plain[leaf].grad(), tolerance);
}

std::vector<KernelCheck> op_checks() {
  std::vector<KernelCheck> checks;
  for (const ConvolutionPath path : kConvolutionPaths) {
    const PathChecks of_path = checks_of(path);
    for (const ConvolutionCheck& c : of_path.cases)
      checks.push_back({fmt::format("convolution by {}", path_name(path)), of_path.kernels,
                        [path, c](Checker& checker) { check_convolution(checker, path, c); }});
  }
  checks.push_back({"lane convolution", {"convolution/lane_convolution"}, [](Checker& checker) {
                      check_lanes(checker, kFirstLayer, 0.4);
                      check_lanes(checker, kPrimaryLayer, 0.1);
                    }});
  checks.push_back({"byte convolution", {"convolution/int8_convolution"}, [](Checker& checker) {
                      check_bytes(checker, kOneImage);
                    }});
  checks.push_back({"channel bias", {"convolution/channel_bias"}, [](Checker& checker) {
                      check_channel_bias(checker, 8, 256, 7);
                    }});
  checks.push_back({"squash", {"pointwise/pointwise"}, [](Checker& checker) {
                      check_capsule_squash(checker, 16, 32, 8, 6);
                      check_capsule_squash(checker, 3, 5, 7, 1);
                      check_channel_squash(checker, 8, 128, 1, 16);
                      check_channel_squash(checker, 8, 32, 4, 8);
                      check_channel_squash(checker, 8, 32, 8, 4);
                      check_channel_squash(checker, 3, 5, 7, 3);
                    }});
  checks.push_back({"margin loss", {"pointwise/pointwise"}, [](Checker& checker) {
                      check_margin_loss(checker, 128, 10);
                    }});
  checks.push_back(
      {"update", {"update/update"}, [](Checker& checker) { check_update(checker, 100'003); }});
  checks.push_back({"batch", {"batch/batch"}, [](Checker& checker) {
                      check_batch(checker, 32, 3, 24);
                      check_sums(checker, 300, 10);
                    }});
  return checks;
}

std::vector<Finding> run_checks(const std::vector<KernelCheck>& checks, torch::Device device,
                                uint64_t seed) {
  Checker checker(device);
  for (const KernelCheck& check : checks) {
    torch::manual_seed(seed);
    check.run(checker);
  }
  return checker.findings();
}

}  // namespace remcaps
