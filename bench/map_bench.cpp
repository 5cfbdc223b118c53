// DeepCaps' own layers, of 64 x 64 images: the squash of its maps and the 3-D routing, each against
// the plain tensor code, same inputs, same process.
//   build/release/bench/bench_map --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "bench/device_timing.h"
#include "remcaps/capsule/conv_caps.h"

namespace remcaps {
namespace {

constexpr int64_t kBatch = 32;

// What the layer does with a map, forward and back.
template <typename Layer>
void train(benchmark::State& state, const Tensor& map, const Layer& layer) {
  for (auto _ : state) {
    const DeviceTimer timer(state, map.device());
    Tensor(map).mutable_grad() = Tensor();
    const Tensor poses = layer(map);
    poses.backward(poses.detach());
  }
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(kBatch),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

// As convolutions leave it: on a GPU bfloat16 and channels-last.
Tensor random_map(int64_t channels, int64_t side) {
  torch::manual_seed(0);
  const torch::Device device = bench_device();
  Tensor map = torch::randn({kBatch, channels, side, side}).to(device);
  if (device.is_cuda())
    map = map.to(torch::kBFloat16).contiguous(torch::MemoryFormat::ChannelsLast);
  return map.requires_grad_();
}

void squash_layer(benchmark::State& state, int64_t types, int64_t dim, int64_t side,
                  KernelPath kernels) {
  train(state, random_map(types * dim, side), [&](const Tensor& map) {
    return squash_channels(map, types, dim, {Squash::Form::kNorm, 1e-8}, kernels);
  });
}

void routed_layer(benchmark::State& state, KernelPath kernels) {
  Conv3dRouting routing;
  routing.kernels = kernels;
  Conv3dCaps layer(Conv3dCapsOptions(/*types=*/32, /*dim=*/8).routing(routing));
  layer->to(bench_device());
  train(state, random_map(256, 4), [&](const Tensor& map) {
    return layer->forward(map.to(torch::kFloat32), {.quantizer = {}, .coupling = false}).poses;
  });
}

void add_benchmarks() {
  for (const KernelPath kernels : {KernelPath::kReference, KernelPath::kFused}) {
    const std::string path = kernels == KernelPath::kFused ? "/fused" : "/plain";
    const auto add_squash = [&](const std::string& name, int64_t types, int64_t dim, int64_t side) {
      add_timed("squash/" + name + path,
                [=](benchmark::State& state) { squash_layer(state, types, dim, side, kernels); });
    };
    add_squash("conv1", 128, 1, 64);
    add_squash("caps00", 32, 4, 32);
    add_squash("caps10", 32, 8, 16);
    add_timed("routing/caps31" + path,
              [=](benchmark::State& state) { routed_layer(state, kernels); });
  }
}

}  // namespace
}  // namespace remcaps

int main(int argc, char** argv) {
  remcaps::add_benchmarks();
  return remcaps::run_benchmarks(argc, argv);
}
