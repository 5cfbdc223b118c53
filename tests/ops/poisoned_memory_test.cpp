// Runs every fused operation twice on a GPU, with free memory full of NaN and full of zeros. The
// results differ if an output, a scratch array or a workspace is read before it is written. The
// sizes are those of the recipes, full batches and the last batches of epochs, since libraries
// choose their algorithms by size. They also choose by the number of multiprocessors: run it with
// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE too.
#include "tests/ops/poisoned_memory.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>

#include "remcaps/ops/batch.h"
#include "remcaps/ops/channel_bias.h"
#include "remcaps/ops/margin_loss.h"
#include "remcaps/ops/pixel_layer.h"
#include "remcaps/ops/routing.h"
#include "remcaps/ops/squash.h"
#include "remcaps/ops/strip_convolution.h"
#include "remcaps/ops/tensor_core_copy.h"
#include "remcaps/ops/update.h"
#include "remcaps/torch/compat.h"
#include "tests/ops/kernel_testing.h"
#include "tests/ops/routing_testing.h"

namespace remcaps {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Sizes = std::array<int64_t, 2>;

constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;

class PoisonedMemoryTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (kernel_devices().size() < 2) GTEST_SKIP() << "no GPU";
    set_deterministic(false);  // cuDNN's search and cuBLAS's workspaces as in a training
  }
  void TearDown() override { at::globalContext().setBenchmarkCuDNN(false); }

  int64_t batch() const { return GetParam(); }
  torch::Device device() const { return torch::Device(torch::kCUDA, 0); }

  Tensor random(const std::vector<int64_t>& shape, torch::ScalarType type = torch::kFloat32,
                double scale = 1) const {
    return (torch::randn(shape, device()) * scale).to(type);
  }
  Tensor random_map(const std::vector<int64_t>& shape, torch::ScalarType type) const {
    return random(shape, type).contiguous(kChannelsLast);
  }

  // `operation` allocates all its results. Its inputs exist before.
  void expect_written(const std::string& what, const std::function<Tensors()>& operation) const {
    const auto results = [&](uint8_t byte) {
      fill_free_memory(byte);
      return operation();
    };
    const Tensors expected = results(0), found = results(kPoison);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor wanted = expected[i].to(torch::kFloat64);
      const double error = (found[i].to(torch::kFloat64) - wanted).abs().max().item<double>();
      const double largest = wanted.abs().max().item<double>();
      EXPECT_LE(error, 1e-2 * largest + 1e-9)  // false for NaN
          << what << ", batch " << batch() << ", result " << i;
    }
  }

  // The result and the gradients of `inputs`, in this order.
  void expect_written(const std::string& what, const Tensors& inputs,
                      const std::function<Tensor(const Tensors&)>& operation) const {
    expect_written(what, [&] {
      Tensors leaves;
      for (const Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
      const Tensor out = operation(leaves);
      const auto options = out.options().dtype(torch::kFloat32).requires_grad(false);
      out.backward(
          torch::linspace(-1, 1, out.numel(), options).view(out.sizes()).to(out.scalar_type()));
      Tensors made = {out.detach()};
      for (const Tensor& leaf : leaves) made.push_back(leaf.grad());
      return made;
    });
    torch::NoGradGuard no_grad;
    expect_written(what + " without gradients", [&] { return Tensors{operation(inputs)}; });
  }
};

std::string name_of(torch::ScalarType type) {
  return std::string(" ") + torch::toString(type);
}

TEST_P(PoisonedMemoryTest, ConvolutionOfPixels) {
  struct Case {
    const char* name;
    int64_t channels, side, filters, kernel, padding;
    bool relu;
  };
  for (const Case& c : {Case{"dr-capsnet, mnist", 1, 28, 256, 9, 0, true},
                        Case{"dr-capsnet, cifar10", 3, 24, 256, 9, 0, true},
                        Case{"deepcaps, mnist", 1, 28, 128, 3, 1, false}})
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      const Tensor images = random({batch(), c.channels, c.side, c.side});
      const PixelLayer layer{.padding = Sizes{c.padding, c.padding}, .type = type, .relu = c.relu};
      expect_written(c.name + name_of(type),
                     {random({c.filters, c.channels, c.kernel, c.kernel}, torch::kFloat32, 0.1),
                      random({c.filters})},
                     [&](const Tensors& x) { return pixel_layer(layer, images, x[0], x[1]); });
    }
}

TEST_P(PoisonedMemoryTest, ConvolutionByStrips) {
  struct Case {
    const char* name;
    int64_t side, filters;
  };
  for (const Case& c : {Case{"dr-capsnet, mnist", 20, 256}, Case{"dr-capsnet, cifar10", 16, 512}})
    for (const auto type : {torch::kFloat32, torch::kBFloat16})
      expect_written(c.name + name_of(type),
                     {random_map({batch(), 256, c.side, c.side}, type),
                      random({c.filters, 256, 9, 9}, torch::kFloat32, 0.01), random({c.filters})},
                     [&](const Tensors& x) {
                       return strip_convolution({.stride = Sizes{2, 2}}, x[0], x[1], x[2]);
                     });
}

// The library calls behind the two tests above. If this fails, the library is at fault.
TEST_P(PoisonedMemoryTest, LibraryProducts) {
  struct Case {
    const char* name;
    int64_t windows, length, filters;
  };
  const auto type = torch::kBFloat16;
  for (const Case& c :
       {Case{"dr-capsnet, mnist", 400, 88, 256}, Case{"dr-capsnet, cifar10", 256, 248, 256},
        Case{"deepcaps, mnist", 784, 16, 128}}) {
    const Tensor rows = random({batch() * c.windows, c.length}, type);
    const Tensor gradient = random({batch() * c.windows, c.filters}, type);
    const Tensor matrix = random({c.filters, c.length}, type, 0.1).t(),
                 bias = random({c.filters}, type);
    const std::string name = c.name;
    expect_written(name + ": mm", [&] { return Tensors{torch::mm(rows, matrix)}; });
    expect_written(name + ": addmm", [&] { return Tensors{torch::addmm(bias, rows, matrix)}; });
    expect_written(name + ": _addmm_activation",
                   [&] { return Tensors{at::_addmm_activation(bias, rows, matrix)}; });
    expect_written(name + ": mm of the weights' gradient",
                   [&] { return Tensors{torch::mm(gradient.t(), rows)}; });
  }
}

TEST_P(PoisonedMemoryTest, LibraryProductsOfStrips) {
  struct Case {
    const char* name;
    int64_t rows, filters;
  };
  constexpr int64_t kTaps = 5, kLength = 9 * 256;
  const auto type = torch::kBFloat16;
  for (const Case& c : {Case{"dr-capsnet, mnist", 6, 256}, Case{"dr-capsnet, cifar10", 4, 512}}) {
    const std::string name = c.name;
    const int64_t places = batch() * c.rows, windows = places * c.rows, strips = kTaps + c.rows - 1;
    const Tensor given = random({strips, places, kLength}, type);
    const Tensor filters = random({kTaps, c.filters, kLength}, type, 0.01);
    const Tensor spread = random({places, (c.rows + 2 * (kTaps - 1)) * c.filters}, type);
    for (const int64_t taps : {kTaps, kTaps - 1}) {
      expect_written(name + ": products of strips", [&] {
        const Tensor out =
            torch::empty({taps, windows, c.filters}, given.options().dtype(torch::kFloat32));
        products_in_float32(
            given.as_strided({taps, windows, kLength}, {given.stride(0), kLength, 1}),
            filters.narrow(0, 0, taps).transpose(1, 2), out);
        return Tensors{out};
      });
      expect_written(name + ": products of the map's gradient", [&] {
        const int64_t count = taps + c.rows - 1;
        return Tensors{torch::bmm(
            spread.as_strided({count, places, taps * c.filters}, {c.filters, spread.size(1), 1}),
            filters.narrow(0, 0, taps)
                .reshape({1, taps * c.filters, kLength})
                .expand({count, -1, -1}))};
      });
    }
  }
}

TEST_P(PoisonedMemoryTest, LibraryConvolutions) {
  struct Case {
    const char* name;
    int64_t channels, side, filters, kernel, stride, padding;
  };
  const auto type = torch::kBFloat16;
  for (const Case& c : {Case{"dr-capsnet, mnist", 256, 20, 256, 9, 2, 0},
                        Case{"dr-capsnet, cifar10", 256, 16, 512, 9, 2, 0},
                        Case{"deepcaps, first cell", 128, 28, 128, 3, 2, 1},
                        Case{"deepcaps, second cell", 256, 7, 256, 3, 1, 1}})
    expect_written(
        c.name,
        {random_map({batch(), c.channels, c.side, c.side}, type),
         random_map({c.filters, c.channels, c.kernel, c.kernel}, type)},
        [&](const Tensors& x) { return torch::conv2d(x[0], x[1], {}, c.stride, c.padding); });
}

TEST_P(PoisonedMemoryTest, CopiesAndBiases) {
  for (const int64_t channels : {16, 256})
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      const std::string name = std::to_string(channels) + " channels" + name_of(type);
      const Tensor map = random_map({batch(), channels, 6, 7}, type);
      expect_written(name + ", add_channel_bias", {map, random({channels})},
                     [](const Tensors& x) { return add_channel_bias(x[0].clone(), x[1]); });
      expect_written(name + ", channel_sums", [&] { return Tensors{channel_sums(map)}; });
      expect_written(name + ", plain_copy", [&] { return Tensors{plain_copy(map)}; });
      const Tensor out = random({batch() * 42, channels}, type),
                   given = random({batch() * 42, channels}, type);
      expect_written(name + ", relu_gradient", [&] {
        const auto [masked, sums] = relu_gradient(out, given);
        return Tensors{masked, sums};
      });
      expect_written(name + ", tensor_core_copy", {random({batch(), channels, 6, 7})},
                     [](const Tensors& x) { return tensor_core_copy(x[0]); });
    }
}

TEST_P(PoisonedMemoryTest, SquashesAndMarginLoss) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16})
    for (const int64_t dim : {1, 4, 8, 6}) {
      const Tensor map = random_map({batch(), 4 * dim, 6, 6}, type);
      for (const Tensor& each : {map, map.contiguous()}) {
        const std::string name = "dim " + std::to_string(dim) + name_of(type);
        expect_written(name + ", primary", {each}, [dim](const Tensors& x) {
          return squash_to_capsules(x[0], 4, dim, Squash{}, KernelPath::kFused);
        });
        expect_written(name + ", channels", {each}, [dim](const Tensors& x) {
          return squash_channels(x[0], 4, dim, Squash{}, KernelPath::kFused);
        });
      }
    }
  const Tensor labels = torch::arange(batch(), device()).remainder(10);
  expect_written("margin loss", {random({batch(), 10}).abs()},
                 [&](const Tensors& x) { return fused_margin_loss(x[0], labels); });
}

TEST_P(PoisonedMemoryTest, Routing) {
  struct Case {
    const char* name;
    int64_t children, parents, child_dim, parent_dim;
  };
  for (const Case& c :
       {Case{"dr-capsnet", 1152, 10, 8, 16}, Case{"gamma-capsnet, hidden", 1152, 32, 8, 8},
        Case{"gamma-capsnet, class", 32, 10, 8, 16}, Case{"deepcaps", 640, 10, 8, 32},
        Case{"any size", 21, 7, 6, 5}})
    for (const bool full : {false, true}) {
      const RoutingInputs inputs = RoutingInputs::random(
          {c.name, batch(), c.children, c.parents, c.child_dim, c.parent_dim});
      const Tensors given = {inputs.children.to(device()), inputs.weight.to(device()),
                             inputs.bias.to(device())};
      FusedRoutingOptions options;
      options.full_gradient = full;
      const std::string name = std::string(c.name) + (full ? ", full gradient" : "");
      expect_written(name + ", dynamic", given, [&](const Tensors& x) {
        return std::get<0>(fused_dynamic_routing(x[0], x[1], x[2], options));
      });
      if (!has_fused_scaled_distance_routing(given[0], given[1])) continue;
      for (const auto mean : {DistanceMean::kBatch, DistanceMean::kImage})
        expect_written(name + ", scaled distance", given, [&](const Tensors& x) {
          return std::get<0>(fused_scaled_distance_routing(x[0], x[1], x[2], options, mean));
        });
    }
}

TEST_P(PoisonedMemoryTest, CouplingsOfRouting) {
  const RoutingInputs inputs = RoutingInputs::random({"", batch(), 288, 10, 8, 16});
  const Tensor children = inputs.children.to(device()), weight = inputs.weight.to(device());
  const Tensor bias = inputs.bias.to(device());
  FusedRoutingOptions options;
  options.return_couplings = true;
  for (const bool rounded : {false, true}) {
    if (rounded) {
      options.level_edges = {0, 0.25, 0.5, 1};
      options.level_centres = {0.1F, 0.4F, 0.8F};
    }
    expect_written("dynamic", [&] {
      const auto [poses, couplings] = fused_dynamic_routing(children, weight, bias, options);
      return Tensors{poses, couplings};
    });
    expect_written("scaled distance", [&] {
      const auto [poses, couplings] =
          fused_scaled_distance_routing(children, weight, bias, options, DistanceMean::kBatch);
      return Tensors{poses, couplings};
    });
  }
}

TEST_P(PoisonedMemoryTest, BatchesSumsAndUpdate) {
  const int64_t count = 3 * batch();
  const Tensor images = torch::randint(0, 256, {count, 3, 24, 24}, torch::kUInt8).to(device());
  const Tensor labels = torch::arange(count, device()).remainder(10);
  const Tensor draws = torch::rand({3, count}).to(device());
  const EpochDraws epoch{torch::randperm(count).to(device()), draws[0], draws[1], draws[2]};
  const Tensor step = torch::ones({1}, labels.options());
  const PixelAugment augment{.shift = 2, .flip = true, .mean = {0.5}, .deviation = {0.3}};
  const auto tensors = [](const FusedBatch& made) {
    return Tensors{made.indices, made.labels, made.images};
  };
  expect_written("training batch", [&] {
    return tensors(fused_batch(images, labels, epoch, step, batch(), augment));
  });
  expect_written("evaluation batch", [&] {
    return tensors(fused_evaluation_batch(images, labels, batch(), batch(), augment));
  });

  const Tensor activations = torch::rand({batch(), 10}).to(device());
  const Tensor loss = activations.mean(), answers = labels.narrow(0, 0, batch());
  expect_written("sums", [&] {
    const Tensor sum = torch::zeros({}, loss.options().dtype(torch::kFloat64));
    const Tensor right = torch::zeros({}, labels.options()), bad = right + 99;
    const Tensor batch_loss = torch::zeros_like(loss),
                 cells = torch::zeros({100}, labels.options());
    add_to_fused_sums(loss, activations, answers, step, sum, right, bad);
    add_to_fused_evaluation(loss, activations, answers, batch_loss, cells);
    return Tensors{sum, right, bad, batch_loss, cells};
  });

  const Tensor weight = random({batch(), 257}), gradient = random({batch(), 257});
  expect_written("update", [&] {
    const UpdatedParameter updated{.parameter = weight.clone(),
                                   .gradient = gradient,
                                   .first = torch::zeros_like(weight),
                                   .second = torch::zeros_like(weight),
                                   .dead = gradient > 1,
                                   .shrink = true};
    fused_update({updated}, {}, step_numbers(1e-3, {}, 1, 1e-4, device()));
    return Tensors{updated.parameter, updated.first, updated.second};
  });
}

INSTANTIATE_TEST_SUITE_P(Batches, PoisonedMemoryTest, ::testing::Values(128, 100, 84, 60, 12, 1),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace remcaps
