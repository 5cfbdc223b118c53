// What every network promises, whatever its architecture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remcaps/base/error.h"
#include "remcaps/capsule/backtrack.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/ops/quantize.h"
#include "remcaps/torch/compat.h"
#include "tests/models/make.h"
#include "tests/ops/kernel_testing.h"

namespace remcaps {
namespace {

using ::testing::HasSubstr;
using testing::images;
using testing::make;
using testing::random_images;

// A network small enough to run many times.
struct Small {
  const char* network;
  ModelContext context;
  const char* options;
};

std::ostream& operator<<(std::ostream& out, const Small& small) {
  std::string name = small.network;
  std::replace(name.begin(), name.end(), '-', '_');
  return out << name << "_" << small.context.input.channels << "x" << small.context.input.height
             << "x" << small.context.input.width;
}

class EveryNetwork : public ::testing::TestWithParam<Small> {
 protected:
  std::shared_ptr<CapsNet> network(const std::string& options = "") const {
    torch::manual_seed(42);
    return make(GetParam().network, GetParam().context,
                options.empty() ? GetParam().options : options);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, EveryNetwork,
    ::testing::Values(
        Small{"dr-capsnet", images(1, 28, 28),
              "{conv_channels: 8, primary_types: 2, decoder: fc, decoder_hidden: [8, 16]}"},
        Small{"dr-capsnet", images(3, 21, 26, 4),
              "{conv_channels: 8, primary_types: 3, decoder: conv, padding: same}"},
        Small{"gamma-capsnet", images(1, 28, 28),
              "{conv_channels: 8, primary_types: 2, hidden: [5], routing: {mean: sample}}"},
        Small{"deepcaps", images(1, 28, 28),
              "{conv_channels: 8, types: 3, class_dim: 6, decoder: conv}"},
        Small{"deepcaps", images(3, 19, 33, 3),
              "{variant: original, conv_channels: 8, types: 3, class_dim: 6, decoder: fc, "
              "decoder_hidden: [8]}"},
        Small{"eff-capsnet", images(1, 28, 28), "{decoder: fc, decoder_hidden: [8, 16]}"},
        Small{"eff-capsnet", images(2, 48, 48, 5), "{routing: {prior: exact}}"},
        Small{"eff-capsnet", images(3, 24, 30, 2), "{}"},
        Small{"eff-conv-capsnet", images(3, 48, 44, 3),
              "{conv_channels: [8, 8, 8, 16], primary_dim: 4, conv_caps_types: 3, conv_caps_dim: "
              "5, class_dim: 6}"},
        Small{"multilayer-dr-capsnet", images(3, 32, 32), "{}"},
        Small{"resnet18-capsnet", images(3, 64, 64, 7), "{}"}),
    [](const auto& info) {
      return ::testing::PrintToString(info.param) + "_" + std::to_string(info.index);
    });

TEST_P(EveryNetwork, TwoPassesAtOnceAreTwoPasses) {
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  const Tensor input = random_images(*model, 2);
  ForwardOptions plain, quantized;
  quantized.trace = true;
  for (size_t i = 0; i < model->routing_layers().size(); ++i)
    quantized.quantizers.emplace_back(Quantizer::uniform(6));
  const auto [first, second] = model->forward_both(input, plain, quantized);
  const Forward alone = model->forward(input, quantized);
  EXPECT_TRUE(first.poses.equal(model->forward(input, plain).poses));
  EXPECT_TRUE(first.routings.empty());
  EXPECT_TRUE(second.poses.equal(alone.poses));
  ASSERT_EQ(second.routings.size(), alone.routings.size());
  for (size_t i = 0; i < alone.routings.size(); ++i)
    EXPECT_TRUE(second.routings[i].coupling.equal(alone.routings[i].coupling)) << i;
}

TEST_P(EveryNetwork, ReturnsPosesActivationsAndATraceOfEachRoutingLayer) {
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  const Tensor batch = random_images(*model, 2);
  const Forward forward = model->forward(batch, options);
  const int64_t classes = GetParam().context.classes;
  ASSERT_EQ(forward.poses.dim(), 3);
  EXPECT_EQ(forward.poses.size(0), 2);
  EXPECT_EQ(forward.poses.size(1), classes);
  ASSERT_EQ(forward.activations.sizes(), torch::IntArrayRef({2, classes}));
  EXPECT_LT((forward.activations - forward.poses.norm(2, -1)).abs().max().item<double>(), 1e-3);
  EXPECT_FALSE(forward.reconstruction.defined());

  const auto layers = model->routing_layers();
  ASSERT_EQ(forward.routings.size(), layers.size());
  EXPECT_EQ(layers.back().name, "class");
  EXPECT_EQ(layers.back().parents, classes);
  for (size_t i = 0; i < layers.size(); ++i) {
    const RoutingTrace& trace = forward.routings[i];
    EXPECT_EQ(trace.layer, layers[i].name);
    EXPECT_EQ(trace.convolutional(), layers[i].convolutional);
    const int64_t last = trace.coupling.dim() - 1;
    EXPECT_EQ(trace.coupling.size(0), 2);
    EXPECT_EQ(trace.coupling.size(last - 1), layers[i].children);
    EXPECT_EQ(trace.coupling.size(last), layers[i].parents);
    EXPECT_EQ(trace.clamped, 0);
    const int64_t children = trace.child_activations.size(1);
    if (trace.convolutional()) {
      ASSERT_EQ(trace.windows.sizes(),
                torch::IntArrayRef({trace.coupling.size(1), layers[i].children}));
      EXPECT_EQ(trace.windows.min().item<int64_t>(), 0);
      EXPECT_LT(trace.windows.max().item<int64_t>(), children);
    } else {
      EXPECT_EQ(children, layers[i].children);
    }
  }
  EXPECT_TRUE(model->forward(batch).routings.empty());
}

// ||v||, of a pre-activation of length `evidence`.
Tensor squashed(const Tensor& evidence, const std::string& network) {
  if (network == "eff-capsnet") return 1 - (-evidence).exp();
  const double epsilon = network == "deepcaps" ? 1e-8 : 1e-6;
  const Tensor square = evidence.square();
  return square / (1 + square) * evidence / (square + epsilon).sqrt();
}

TEST_P(EveryNetwork, ContributionsOfChildrenAndBiasAddUpToTheEvidence) {
  const std::string name = GetParam().network;
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    // Poses of a fresh network are short, and its priors are 0.
    if (item.key() == "class.weight" || item.key() == "conv_caps.weight") item.value().mul_(5);
    if (item.key() == "class.prior") item.value().normal_(0, 0.1);
  }
  const Tensor batch = random_images(*model, 2);
  for (const int64_t levels : {0, 11}) {
    ForwardOptions options;
    options.trace = true;
    options.contributions = true;
    if (levels > 0)
      options.quantizers.assign(model->routing_layers().size(), Quantizer::uniform(levels));
    const Forward forward = model->forward(batch, options);
    const auto& routings = forward.routings;
    const size_t first = first_chained_layer(routings);
    EXPECT_EQ(first, name == "deepcaps" ? 1u : 0u);
    Tensor of_classes;  // [B, J]
    for (size_t l = 0; l < routings.size(); ++l) {
      const RoutingTrace& trace = routings[l];
      ASSERT_EQ(trace.contribution.sizes(), trace.coupling.sizes());
      Tensor evidence = trace.contribution.to(torch::kDouble).sum(-2) +
                        trace.bias_contribution.to(torch::kDouble);
      if (evidence.dim() == 3) evidence = evidence.transpose(1, 2).flatten(1);  // [B, J * P]
      if (l + 1 == routings.size()) of_classes = evidence;
      if (l < first) continue;
      // What the network itself made of the pre-activations.
      const Tensor lengths =
          l + 1 == routings.size() ? forward.activations : routings[l + 1].child_activations;
      EXPECT_LT((squashed(evidence, name) - lengths).abs().max().item<double>(), 1e-5)
          << trace.layer << ", K = " << levels;
      EXPECT_GT(lengths.max().item<double>(), 1e-3);
    }
    for (int64_t j = 0; j < of_classes.size(1); ++j)
      for (size_t l = first; l < routings.size(); ++l) {
        const Evidence evidence = evidence_for(routings, l, torch::full({2}, j, torch::kLong));
        EXPECT_EQ(evidence.children.sizes(), routings[l].child_activations.sizes());
        EXPECT_LT((evidence.total() - of_classes.select(1, j)).abs().max().item<double>(),
                  1e-5 * (1 + of_classes.max().item<double>()))
            << routings[l].layer << ", class " << j << ", K = " << levels;
      }
    options.contributions = false;
    EXPECT_FALSE(model->forward(batch, options).routings[0].contribution.defined());
  }
}

// What a place of a map sees, by experiment: the pixels whose change changes its capsules.
TEST_P(EveryNetwork, ReceptiveFieldsHoldThePixelsThatCapsulesSee) {
  if (std::string(GetParam().options).find("instance") != std::string::npos ||
      GetParam().context.input.channels == 2)
    GTEST_SKIP() << "an instance norm sees the whole image";
  // A frozen backbone has no gradient to follow.
  const bool frozen = std::string(GetParam().network) == "resnet18-capsnet";
  const auto model = network(frozen ? "{freeze: false}" : "");
  model->eval();
  ForwardOptions options;
  options.trace = true;
  Tensor image = random_images(*model, 1).requires_grad_();
  const Forward forward = model->forward(image, options);
  for (const RoutingTrace& trace : forward.routings)
    for (const CapsuleGrid& grid : trace.grids) {
      ASSERT_TRUE(grid.field.has_value()) << trace.layer;
      const std::vector<std::pair<int64_t, int64_t>> places = {
          {0, 0}, {grid.height / 2, grid.width / 2}, {grid.height - 1, grid.width - 1}};
      for (const auto& [y, x] : places) {
        const int64_t capsule = grid.offset + y * grid.stride_y + x * grid.stride_x;
        Tensor seen;
        for (int64_t type = 0; type < grid.types; ++type) {
          const Tensor pose = trace.children.select(1, capsule + type * grid.stride_type);
          const Tensor gradient = torch::autograd::grad({pose.abs().sum()}, {image}, {}, true)[0];
          const Tensor pixels = gradient.abs().sum(0).sum(0).gt(0);  // [H, W]
          seen = seen.defined() ? seen.logical_or(pixels) : pixels;
        }
        const auto expect = [&, y = y, x = x](const ReceptiveField::Axis& axis, int64_t place,
                                              const Tensor& along) {
          const double centre = axis.first + static_cast<double>(place * axis.step);
          const double reach = static_cast<double>(axis.size - 1) / 2;
          const Tensor at = along.nonzero().flatten();
          ASSERT_GT(at.size(0), 0);
          const double low = std::max(0.0, centre - reach);
          const double high = std::min(static_cast<double>(along.size(0) - 1), centre + reach);
          EXPECT_EQ(at.min().item<double>(), low) << trace.layer << " " << y << "," << x;
          EXPECT_EQ(at.max().item<double>(), high) << trace.layer << " " << y << "," << x;
        };
        expect(grid.field->y, y, seen.any(1));
        expect(grid.field->x, x, seen.any(0));
      }
    }
}

TEST_P(EveryNetwork, GridsNameEachChildOnce) {
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  for (const RoutingTrace& trace : model->forward(random_images(*model, 1), options).routings) {
    if (trace.grids.empty()) continue;
    std::vector<int> seen(trace.child_activations.size(1), 0);
    for (const CapsuleGrid& grid : trace.grids)
      for (int64_t o = 0; o < grid.types; ++o)
        for (int64_t y = 0; y < grid.height; ++y)
          for (int64_t x = 0; x < grid.width; ++x)
            ++seen.at(grid.offset + o * grid.stride_type + y * grid.stride_y + x * grid.stride_x);
    EXPECT_THAT(seen, ::testing::Each(1)) << trace.layer;
  }
}

TEST_P(EveryNetwork, EveryTrainedParameterGetsAFiniteGradientAlsoFromOneImage) {
  for (const int64_t batch : {1, 3}) {
    const auto model = network();
    ForwardOptions options;
    options.reconstruct = true;
    const Tensor input = random_images(*model, batch);
    options.labels = torch::arange(batch) % GetParam().context.classes;
    const Forward forward = model->forward(input, options);
    Tensor loss = margin_loss(forward.activations, options.labels);
    EXPECT_EQ(forward.reconstruction.defined(), model->has_decoder());
    if (model->has_decoder()) loss = loss + reconstruction_loss(forward.reconstruction, input);
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
    }
  }
}

TEST_P(EveryNetwork, AnImageDoesNotSeeItsNeighboursInEvaluation) {
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  const Tensor batch = random_images(*model, 3);
  const Forward all = model->forward(batch), one = model->forward(batch.narrow(0, 1, 1));
  EXPECT_LT((all.poses[1] - one.poses[0]).abs().max().item<double>(), 1e-4);
}

TEST_P(EveryNetwork, QuantizesTheRoutingLayersAskedFor) {
  const auto model = network();
  model->eval();
  const torch::NoGradGuard no_grad;
  ForwardOptions options;
  options.trace = true;
  options.quantizers.resize(model->routing_layers().size());
  options.quantizers.back() = Quantizer::uniform(11);
  const Forward forward = model->forward(random_images(*model, 2), options);
  const Tensor coupling = forward.routings.back().coupling;
  EXPECT_TRUE(torch::equal(quantize(coupling, *options.quantizers.back()), coupling));
  if (forward.routings.size() > 1) {
    const Tensor other = forward.routings.front().coupling;
    EXPECT_FALSE(torch::equal(quantize(other, Quantizer::uniform(11)), other));
  }
  options.quantizers.emplace_back();
  EXPECT_THROW(model->forward(random_images(*model, 1), options), Error);
}

TEST_P(EveryNetwork, FusedAndReferencePathsAgree) {
  const auto fused = network();
  ModelContext context = GetParam().context;
  context.kernels = KernelPath::kReference;
  torch::manual_seed(42);
  const auto reference = make(GetParam().network, context, GetParam().options);
  fused->eval();
  reference->eval();
  const torch::NoGradGuard no_grad;
  const Tensor batch = random_images(*fused, 2);
  EXPECT_LT(
      (fused->forward(batch).poses - reference->forward(batch).poses).abs().max().item<double>(),
      1e-4);
}

TEST_P(EveryNetwork, FusedAndReferenceGradientsAgree) {
  std::vector<Tensor> gradients[2];
  for (const auto kernels : {KernelPath::kFused, KernelPath::kReference}) {
    ModelContext context = GetParam().context;
    context.kernels = kernels;
    torch::manual_seed(1);  // no ReLU sits so near to its kink that rounding opens it on one path
    const auto model = make(GetParam().network, context, GetParam().options);
    model->train();
    const Tensor labels = torch::arange(4) % context.classes;
    margin_loss(model->forward(random_images(*model, 4)).activations, labels).backward();
    for (const auto& item : model->named_parameters())
      if (item.value().grad().defined() && item.key() != "conv1.bias")
        gradients[kernels == KernelPath::kFused].push_back(item.value().grad());
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(close_to(gradients[1][i], gradients[0][i], 2e-3)) << i;
}

#ifdef REMCAPS_CUDA
TEST_P(EveryNetwork, InBfloat16OnAGpuPosesAreCloseAndGradientsAreFiniteFloats) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const torch::Device device("cuda");
  const auto model = network();
  model->to(device);
  model->eval();
  const Tensor batch = random_images(*model, 4).to(device);
  const Tensor expected = model->forward(batch).poses.detach();
  const auto in_bfloat16 = [&] {
    const Autocast autocast(true, device);
    return model->forward(batch);
  };
  const Tensor found = in_bfloat16().poses.detach();
  EXPECT_EQ(found.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(close_to(found, expected, 0.1));

  model->train();
  const Tensor labels = (torch::arange(4) % GetParam().context.classes).to(device);
  margin_loss(in_bfloat16().activations, labels).backward();
  for (const auto& item : model->named_parameters()) {
    const Tensor gradient = item.value().grad();
    if (!gradient.defined()) continue;
    EXPECT_EQ(gradient.scalar_type(), torch::kFloat32) << item.key();
    EXPECT_TRUE(torch::isfinite(gradient).all().item<bool>()) << item.key();
  }
}
#endif

TEST_P(EveryNetwork, ResolvedOptionsMakeTheSameNetworkAgain) {
  ConfigSection first(YAML::Load(GetParam().options), "test", "model");
  const auto model = make_network(GetParam().network, GetParam().context, first);
  ConfigSection second(YAML::Clone(first.resolved()), "test", "model");
  const auto again = make_network(GetParam().network, GetParam().context, second);
  EXPECT_EQ(YAML::Dump(first.resolved()), YAML::Dump(second.resolved()));
  const auto a = model->named_parameters(), b = again->named_parameters();
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) EXPECT_EQ(item.value().sizes(), b[item.key()].sizes());
}

TEST_P(EveryNetwork, RefusesImagesOfAnotherShape) {
  const auto model = network();
  const ImageShape shape = model->input();
  EXPECT_THROW(model->forward(torch::zeros({1, shape.channels + 1, shape.height, shape.width})),
               Error);
}

TEST_P(EveryNetwork, CostsAreThoseOfTheLayersThatRun) {
  const auto model = network();
  for (const auto& row : model->costs()) {
    EXPECT_FALSE(row.kind.empty()) << row.name;
    EXPECT_GT(row.multiply_adds, 0) << row.name;
    EXPECT_FALSE(row.output.empty()) << row.name;
  }
  int64_t voting = 0;
  for (const auto& row : model->costs()) voting += row.vote_floats > 0;
  EXPECT_EQ(voting, static_cast<int64_t>(model->routing_layers().size()));
}

}  // namespace
}  // namespace remcaps
