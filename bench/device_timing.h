// What the kernel benchmarks share: the device, its clock, and main().
#pragma once

#include <benchmark/benchmark.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "remcaps/torch/runtime.h"

namespace remcaps {

/// $REMCAPS_BENCH_DEVICE, else the GPU if there is one.
inline torch::Device bench_device() {
  const char* wanted = std::getenv("REMCAPS_BENCH_DEVICE");
  return parse_device(wanted != nullptr ? wanted : default_device());
}

/// Times its own life as one iteration, to the end of the device's work.
class DeviceTimer {
 public:
  DeviceTimer(benchmark::State& state, const torch::Device& device)
      : state_(state), device_(device) {
    wait();
    begin_ = std::chrono::steady_clock::now();
  }
  ~DeviceTimer() {
    wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    state_.SetIterationTime(seconds.count());
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

 private:
  void wait() const {
    if (device_.is_cuda()) torch::cuda::synchronize(device_.index());
  }

  benchmark::State& state_;
  torch::Device device_;
  std::chrono::steady_clock::time_point begin_;
};

/// The least disturbed repetition: what to quote from a machine that others use too.
inline double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// Registers a benchmark that times itself with DeviceTimer.
template <typename Body>
void add_timed(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime()
      ->ComputeStatistics("min", smallest);
}

/// The machine's facts at the head of the output, then the benchmarks asked for.
inline int run_benchmarks(int argc, char** argv) {
  prepare_process(argv);
  const RuntimeInfo info = runtime_info();
  benchmark::AddCustomContext("libtorch", info.torch);
  benchmark::AddCustomContext("simd", info.simd);
  benchmark::AddCustomContext("blas", info.blas + " " + info.blas_core);
  benchmark::AddCustomContext("threads", std::to_string(info.threads));
  benchmark::AddCustomContext("device", bench_device().str());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace remcaps
