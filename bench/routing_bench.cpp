// Routing alone: the fused kernel against the plain tensor code, same inputs, same process.
//   build/release/bench/bench_routing --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "bench/device_timing.h"
#include "remcaps/capsule/routing/dynamic.h"
#include "remcaps/capsule/routing/scaled_distance.h"
#include "remcaps/ops/routing.h"

namespace remcaps {
namespace {

struct Layer {
  const char* name;
  int64_t batch, children, parents, child_dim, parent_dim;
  double alive = 1.0;        ///< share of the blocks W_ij that are not pruned
  bool by_distance = false;  ///< scaled-distance routing; else dynamic
  RoutingGradient gradient = RoutingGradient::kLast;
};

const Layer kLayers[] = {
    {"dr-mnist", 128, 1152, 10, 8, 16},
    {"dr-mnist-batch1", 1, 1152, 10, 8, 16},
    {"dr-mnist-batch8", 8, 1152, 10, 8, 16},
    {"dr-mnist-pruned80", 128, 1152, 10, 8, 16, 0.2},
    {"dr-cifar10", 128, 1024, 10, 8, 16},
    {"deepcaps-28", 128, 640, 10, 8, 32},
    {"tiny-imagenet", 128, 36, 200, 8, 16},
    {"gamma-mnist-first", 128, 1152, 32, 8, 8, 1.0, true},
    {"gamma-mnist-second", 128, 32, 10, 8, 16, 1.0, true},
    {"gamma-mnist-first-full", 128, 1152, 32, 8, 8, 1.0, true, RoutingGradient::kFull},
    {"gamma-mnist-second-full", 128, 32, 10, 8, 16, 1.0, true, RoutingGradient::kFull},
};

/// kPacked: the fused kernel for few images, by matrices laid out beforehand.
enum class Path { kPlain, kFused, kPacked };

void time_routing(benchmark::State& state, const Layer& layer, Path path, bool train) {
  torch::manual_seed(0);
  const torch::Device device = bench_device();
  const Tensor children =
      (torch::randn({layer.batch, layer.children, layer.child_dim}) * 0.3).to(device);
  Tensor weight =
      torch::randn({layer.children, layer.parents, layer.parent_dim, layer.child_dim}) * 0.1;
  if (layer.alive < 1) weight *= (torch::rand({layer.children, layer.parents, 1, 1}) < layer.alive);
  weight = weight.to(device);
  const Tensor bias = torch::full({layer.parents, layer.parent_dim}, 0.1, device);
  for (const Tensor& tensor : {children, weight, bias}) tensor.requires_grad_(train);

  const KernelPath kernels = path == Path::kPlain ? KernelPath::kReference : KernelPath::kFused;
  std::optional<PackedMatrices> packed;
  if (path == Path::kPacked) packed.emplace(weight);
  RoutingPtr routing = DynamicRouting{.gradient = layer.gradient, .kernels = kernels};
  if (layer.by_distance)
    routing = ScaledDistanceRouting{.gradient = layer.gradient, .kernels = kernels};

  torch::AutoGradMode grad_mode(train);
  for (auto _ : state) {
    const DeviceTimer timer(state, device);
    const Tensor poses =
        routing->route(children, weight, bias, {.coupling = false}, packed ? &*packed : nullptr)
            .poses;
    if (train) {
      for (Tensor tensor : {children, weight, bias}) tensor.mutable_grad() = Tensor();
      poses.sum().backward();
    }
    benchmark::DoNotOptimize(poses.unsafeGetTensorImpl());
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(layer.batch),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void add_benchmark(const Layer& layer, const char* path_name, Path path, bool train) {
  add_timed(fmt::format("{}/{}/{}", train ? "forward+backward" : "forward", layer.name, path_name),
            [=](benchmark::State& state) { time_routing(state, layer, path, train); });
}

void add_benchmarks() {
  for (const Layer& layer : kLayers) {
    for (const bool train : {false, true}) {
      add_benchmark(layer, "plain", Path::kPlain, train);
      add_benchmark(layer, "fused", Path::kFused, train);
    }
    if (bench_device().is_cpu() && layer.batch <= kernels::cpu::most_few_images())
      add_benchmark(layer, "packed", Path::kPacked, /*train=*/false);
  }
}

}  // namespace
}  // namespace remcaps

int main(int argc, char** argv) {
  remcaps::add_benchmarks();
  return remcaps::run_benchmarks(argc, argv);
}
