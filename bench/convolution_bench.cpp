// The convolutions in front of capsules on the CPU: the project's own kernels (with weights packed
// beforehand; bfloat16 where the CPU has AMX) against libtorch's (oneDNN), same inputs, same
// process; and of pruned weights, as many per cent of them left as the name ends in, what the
// sparse kernel takes.
//   build/release/bench/bench_convolution --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <optional>

#include "bench/device_timing.h"
#include "remcaps/ops/convolution.h"

namespace remcaps {
namespace {

using torch::Tensor;

struct Convolution {
  const char* name;
  int64_t batch, channels, side, filters, kernel, stride;
};

enum class Kernel { kPlain, kFast, kPacked, kBf16 };

const Convolution kConvolutions[] = {
    {"dr-mnist-conv1", 32, 1, 28, 256, 9, 1},
    {"dr-mnist-primary", 32, 256, 20, 256, 9, 2},
    {"dr-mnist-primary-batch1", 1, 256, 20, 256, 9, 2},
    {"dr-cifar10-primary", 32, 256, 16, 512, 9, 2},
};

void convolve(benchmark::State& state, const Convolution& c, Kernel kernel, bool train) {
  torch::manual_seed(0);
  const Tensor map = torch::randn({c.batch, c.channels, c.side, c.side});
  const Tensor weight = torch::randn({c.filters, c.channels, c.kernel, c.kernel}) * 0.01;
  const Tensor bias = torch::randn({c.filters});
  weight.requires_grad_(train);
  bias.requires_grad_(train);
  if (c.channels > 3) map.requires_grad_(train);  // images need no gradient
  torch::AutoGradMode grad_mode(train);
  std::optional<PackedFilters> packed;
  if (kernel == Kernel::kPacked) packed.emplace(weight);
  Tensor direction;
  for (auto _ : state) {
    const DeviceTimer timer(state, torch::kCPU);
    const std::array<int64_t, 2> stride = {c.stride, c.stride};
    const Tensor out =
        kernel == Kernel::kBf16 ? bf16_convolution(map, weight, bias, stride, /*relu=*/false)
        : kernel == Kernel::kPlain
            ? torch::conv2d(map, weight, bias, stride)
            : panel_convolution(map, weight, bias, stride, packed ? &*packed : nullptr);
    if (!train) continue;
    if (!direction.defined()) direction = torch::ones_like(out);
    for (Tensor tensor : {map, weight, bias}) tensor.mutable_grad() = Tensor();
    out.backward(direction);
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(c.batch),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void convolve_pruned(benchmark::State& state, const Convolution& c, int percent) {
  torch::manual_seed(0);
  const torch::NoGradGuard no_grad;
  const Tensor map = torch::randn({c.batch, c.channels, c.side, c.side});
  const Tensor weight = torch::randn({c.filters, c.channels, c.kernel, c.kernel}) * 0.01;
  const SparseWeights weights(weight * (torch::rand_like(weight) < percent / 100.0));
  const Tensor bias = torch::randn({c.filters});
  for (auto _ : state) {
    const DeviceTimer timer(state, torch::kCPU);
    sparse_convolution(map, weights, bias, {c.stride, c.stride}, {0, 0}, /*relu=*/false);
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(c.batch),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void add_benchmarks() {
  for (const Convolution& c : kConvolutions)
    for (const int percent : {50, 25, 13, 5, 2})
      add_timed("forward/" + std::string(c.name) + "/sparse-" + std::to_string(percent),
                [=](benchmark::State& state) { convolve_pruned(state, c, percent); });
  for (const Convolution& c : kConvolutions)
    for (const bool train : {false, true})
      for (const auto& [kernel, label] : {std::pair{Kernel::kPlain, "/plain"},
                                          {Kernel::kFast, "/fast"},
                                          {Kernel::kPacked, "/packed"},
                                          {Kernel::kBf16, "/bf16"}}) {
        if (kernel == Kernel::kPacked && train) continue;
        if (kernel == Kernel::kBf16 && (train || !cpu_has_bf16_convolution())) continue;
        const std::string name =
            std::string(train ? "forward+backward/" : "forward/") + c.name + label;
        add_timed(name, [=, kernel = kernel](benchmark::State& state) {
          convolve(state, c, kernel, train);
        });
      }
}

}  // namespace
}  // namespace remcaps

int main(int argc, char** argv) {
  remcaps::add_benchmarks();
  return remcaps::run_benchmarks(argc, argv);
}
