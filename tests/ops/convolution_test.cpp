// Which implementation of a convolution is chosen, as a table.
#include "remcaps/ops/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <ostream>

namespace remcaps {

void PrintTo(ConvolutionPath path, std::ostream* out) {
  *out << path_name(path);
}

namespace {

using enum ConvolutionPath;

// DR-CapsNet's primary layer with its gradients, on a CPU with AMX, 16 images.
ConvolutionFacts primary_layer() {
  ConvolutionFacts facts;
  facts.channels = facts.filters = 256;
  facts.kernel_height = facts.kernel_width = 9;
  facts.stride = {2, 2};
  facts.batch = 16;
  facts.height = facts.width = 20;
  facts.map_gradient = facts.any_gradient = true;
  facts.amx = true;
  facts.tile_width = 32;
  return facts;
}

// Its first layer, whose images need no gradient.
ConvolutionFacts first_layer() {
  ConvolutionFacts facts = primary_layer();
  facts.channels = 1;
  facts.stride = {1, 1};
  facts.height = facts.width = 28;
  facts.map_gradient = false;
  return facts;
}

// A pass without gradients.
ConvolutionFacts evaluated(ConvolutionFacts facts) {
  facts.map_gradient = facts.any_gradient = false;
  return facts;
}

ConvolutionFacts on_gpu(ConvolutionFacts facts) {
  facts.device = torch::kCUDA;
  facts.strip_kernels = facts.channels % 64 == 0;
  return facts;
}

struct Choice {
  const char* name;
  ConvolutionPath expected;
  ConvolutionFacts facts;
  void (*change)(ConvolutionFacts&);
};

const Choice kChoices[] = {
    // A CPU, with gradients.
    {"primary layer", kPanels, primary_layer(), [](auto&) {}},
    {"first layer", kPanels, first_layer(), [](auto&) {}},
    {"reference", kPlain, primary_layer(), [](auto& f) { f.kernels = KernelPath::kReference; }},
    {"float64", kPlain, primary_layer(), [](auto& f) { f.map_type = torch::kFloat64; }},
    {"float64 weight", kPlain, primary_layer(), [](auto& f) { f.weight_type = torch::kFloat64; }},
    {"padding", kPlain, primary_layer(),
     [](auto& f) {
       f.padding = {1, 0};
     }},
    {"dilation or groups", kPlain, primary_layer(), [](auto& f) { f.dense_windows = false; }},
    {"not whole tiles of filters", kPlain, primary_layer(), [](auto& f) { f.filters = 100; }},
    {"not whole tiles of channels", kPlain, primary_layer(), [](auto& f) { f.channels = 100; }},
    {"the same without the map's gradient", kPanels, primary_layer(),
     [](auto& f) {
       f.channels = 100;
       f.map_gradient = false;
     }},
    {"images that need a gradient", kPlain, first_layer(), [](auto& f) { f.map_gradient = true; }},
    {"one small map", kPlain, primary_layer(), [](auto& f) { f.batch = 1; }},
    {"an empty batch", kPlain, primary_layer(), [](auto& f) { f.batch = 0; }},
    {"what does not fit", kPlain, primary_layer(), [](auto& f) { f.fits = false; }},
    {"a kernel larger than the map", kPlain, primary_layer(), [](auto& f) { f.height = 8; }},
    {"bf16 with gradients", kPanels, primary_layer(), [](auto& f) { f.bf16 = true; }},
    {"packed with gradients", kPlain, primary_layer(),
     [](auto& f) {
       f.batch = 1;
       f.packed_filters = true;
       f.density = 0.1;
     }},
    // A CPU, without gradients.
    {"evaluated primary layer", kPanels, evaluated(primary_layer()), [](auto&) {}},
    {"evaluated odd channels", kPanels, evaluated(primary_layer()),
     [](auto& f) { f.channels = 100; }},
    {"one packed map", kPanels, evaluated(primary_layer()),
     [](auto& f) {
       f.batch = 1;
       f.packed_filters = true;
     }},
    {"bf16", kBf16Tiles, evaluated(primary_layer()), [](auto& f) { f.bf16 = true; }},
    {"bf16 of any number of filters", kBf16Tiles, evaluated(primary_layer()),
     [](auto& f) {
       f.bf16 = true;
       f.filters = 100;
     }},
    {"bf16 without AMX", kPanels, evaluated(primary_layer()),
     [](auto& f) {
       f.bf16 = true;
       f.amx = false;
     }},
    {"bf16 of one small map", kPlain, evaluated(primary_layer()),
     [](auto& f) {
       f.bf16 = true;
       f.batch = 1;
     }},
    {"bf16 with padding", kPlain, evaluated(primary_layer()),
     [](auto& f) {
       f.bf16 = true;
       f.padding = {1, 1};
     }},
    {"bf16 before sparse", kBf16Tiles, evaluated(primary_layer()),
     [](auto& f) {
       f.bf16 = true;
       f.density = 0.1;
     }},
    {"a quarter of the weights", kSparse, evaluated(primary_layer()),
     [](auto& f) { f.density = 0.25; }},
    {"a third of the weights, many places", kPanels, evaluated(primary_layer()),
     [](auto& f) { f.density = 0.3; }},
    {"a third of the weights, one map", kSparse, evaluated(primary_layer()),
     [](auto& f) {
       f.density = 0.3;
       f.packed_filters = true;
       f.batch = 1;
     }},
    {"half of the weights of a first layer", kSparse, evaluated(first_layer()),
     [](auto& f) { f.density = 0.5; }},
    {"few weights with padding", kSparse, evaluated(primary_layer()),
     [](auto& f) {
       f.density = 0.1;
       f.padding = {1, 1};
     }},
    {"a third of the weights with padding, many places", kPlain, evaluated(primary_layer()),
     [](auto& f) {
       f.density = 0.3;
       f.padding = {1, 1};
     }},
    // A GPU.
    {"float32 on a GPU", kPlain, on_gpu(primary_layer()), [](auto&) {}},
    {"tf32", kStrips, on_gpu(primary_layer()), [](auto& f) { f.tf32 = true; }},
    {"autocast", kStrips, on_gpu(primary_layer()), [](auto& f) { f.autocast = true; }},
    {"autocast of a bf16 map", kStrips, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.map_type = torch::kBFloat16;
     }},
    {"reference under autocast", kPlain, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.kernels = KernelPath::kReference;
     }},
    {"first layer in tf32", kPixels, on_gpu(first_layer()), [](auto& f) { f.tf32 = true; }},
    {"first layer under autocast", kPixels, on_gpu(first_layer()),
     [](auto& f) { f.autocast = true; }},
    {"first layer with padding", kPixels, on_gpu(first_layer()),
     [](auto& f) {
       f.autocast = true;
       f.padding = {1, 1};
     }},
    {"first layer in float32", kPlain, on_gpu(first_layer()), [](auto&) {}},
    {"images that need a gradient under autocast", kTensorCores, on_gpu(first_layer()),
     [](auto& f) {
       f.autocast = true;
       f.map_gradient = true;
     }},
    {"small windows under autocast", kTensorCores, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.kernel_height = f.kernel_width = 3;
     }},
    {"small windows in tf32", kPlain, on_gpu(primary_layer()),
     [](auto& f) {
       f.tf32 = true;
       f.kernel_height = f.kernel_width = 3;
     }},
    {"windows without a stride", kTensorCores, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.stride = {1, 2};
     }},
    {"filters that do not fill a piece", kTensorCores, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.filters = 100;
     }},
    {"filters without strip kernels", kTensorCores, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.strip_kernels = false;
     }},
    {"groups under autocast", kTensorCores, on_gpu(primary_layer()),
     [](auto& f) {
       f.autocast = true;
       f.dense_windows = false;
     }},
};

TEST(ConvolutionChoice, IsThatOfTheTable) {
  for (const Choice& choice : kChoices) {
    ConvolutionFacts facts = choice.facts;
    choice.change(facts);
    EXPECT_EQ(choose(facts), choice.expected) << choice.name;
    EXPECT_TRUE(has_kernel(choose(facts), facts)) << choice.name;
  }
}

TEST(ConvolutionChoice, EveryPathIsChosenForSomething) {
  for (const ConvolutionPath path : kConvolutionPaths)
    EXPECT_TRUE(std::any_of(std::begin(kChoices), std::end(kChoices), [&](const Choice& choice) {
      return choice.expected == path;
    })) << path_name(path);
}

TEST(ConvolutionFactsOf, TensorsAreTheirSizesTypesAndGradients) {
  const torch::Tensor map = torch::randn({2, 6, 9, 8}, torch::kFloat64);
  const torch::Tensor weight = torch::randn({4, 3, 5, 2}).requires_grad_();
  const ConvolutionLayer layer{.weight = weight, .stride = {2, 1}, .padding = {0, 1}, .groups = 2};
  const ConvolutionFacts facts = facts_of(map, layer, KernelPath::kFused);
  EXPECT_TRUE(facts.fits);
  EXPECT_EQ(facts.channels, 6);
  EXPECT_EQ(facts.filters, 4);
  EXPECT_EQ(facts.kernel_height, 5);
  EXPECT_EQ(facts.kernel_width, 2);
  EXPECT_EQ(facts.places(), 2 * 3 * 7);
  EXPECT_FALSE(facts.dense_windows);
  EXPECT_EQ(facts.map_type, torch::kFloat64);
  EXPECT_EQ(facts.weight_type, torch::kFloat32);
  EXPECT_FALSE(facts.map_gradient);
  EXPECT_TRUE(facts.any_gradient);
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(facts_of(map, layer, KernelPath::kFused).any_gradient);
}

TEST(ConvolutionFactsOf, WindowsChannelsAndBiasMustFit) {
  const torch::Tensor map = torch::randn({2, 6, 9, 8});
  const auto fits = [&](const ConvolutionLayer& layer) {
    return facts_of(map, layer, KernelPath::kFused).fits;
  };
  EXPECT_TRUE(fits({.weight = torch::randn({4, 6, 9, 8})}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 5, 3, 3})}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 10, 3})}));
  EXPECT_TRUE(fits({.weight = torch::randn({4, 6, 10, 3}), .padding = {1, 0}}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 6, 3}), .dilation = {2, 1}}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 3})}));
  EXPECT_FALSE(fits({.weight = torch::randn({0, 6, 3, 3})}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 3, 3}), .stride = {0, 1}}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 3, 3}), .padding = {-1, 0}}));
  EXPECT_TRUE(fits({.weight = torch::randn({4, 6, 3, 3}), .bias = torch::randn({4})}));
  EXPECT_FALSE(fits({.weight = torch::randn({4, 6, 3, 3}), .bias = torch::randn({3})}));
  EXPECT_FALSE(
      fits({.weight = torch::randn({4, 6, 3, 3}), .bias = torch::randn({4}, torch::kFloat64)}));
}

}  // namespace
}  // namespace remcaps
