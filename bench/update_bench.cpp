// The optimiser's step on the parameters of DR-CapsNet (MNIST): LOBSTER, Adam and the mask as one
// pass, against the same as separate tensor operations.
//   build/release/bench/bench_update --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include "bench/device_timing.h"
#include "remcaps/ops/update.h"
#include "remcaps/pruning/lobster_pruner.h"
#include "remcaps/training/adam.h"

namespace remcaps {
namespace {

constexpr double kLr = 1e-3, kLambda = 1e-4;

// conv1, primary capsules, class capsules: weights and biases.
std::vector<std::vector<int64_t>> dr_capsnet_shapes() {
  return {{256, 1, 9, 9}, {256}, {256, 256, 9, 9}, {256}, {1152, 10, 16, 8}, {10, 16}};
}

std::vector<UpdatedParameter> random_parameters(const torch::Device& device) {
  torch::manual_seed(0);
  std::vector<UpdatedParameter> parameters;
  for (const auto& shape : dr_capsnet_shapes()) {
    UpdatedParameter item;
    item.parameter = torch::randn(shape, device).requires_grad_();
    item.parameter.mutable_grad() = torch::randn(shape, device) * 0.01;
    item.gradient = item.parameter.grad();
    item.first = torch::zeros(shape, device);
    item.second = torch::zeros(shape, device);
    item.dead = torch::rand(shape, device) < 0.5;
    item.shrink = true;
    parameters.push_back(item);
  }
  return parameters;
}

void update_fused(benchmark::State& state) {
  const torch::Device device = bench_device();
  const std::vector<UpdatedParameter> parameters = random_parameters(device);
  for (auto _ : state) {
    const DeviceTimer timer(state, device);
    fused_update(parameters, {}, step_numbers(kLr, {}, 1, kLambda, device));
  }
}

void update_plain(benchmark::State& state) {
  const torch::Device device = bench_device();
  std::vector<UpdatedParameter> parameters = random_parameters(device);
  Adam::NamedParameters named;
  for (const UpdatedParameter& item : parameters)
    named.emplace_back(std::to_string(named.size()), item.parameter);
  Adam adam(named, {});
  torch::NoGradGuard no_grad;
  for (auto _ : state) {
    const DeviceTimer timer(state, device);
    for (const UpdatedParameter& item : parameters)
      lobster_shrink(item.parameter, item.gradient, kLambda);
    adam.step(kLr);
    for (UpdatedParameter& item : parameters) item.parameter.masked_fill_(item.dead, 0);
  }
}

BENCHMARK(update_plain)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->ComputeStatistics("min", smallest);
BENCHMARK(update_fused)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->ComputeStatistics("min", smallest);

}  // namespace
}  // namespace remcaps

int main(int argc, char** argv) {
  return remcaps::run_benchmarks(argc, argv);
}
