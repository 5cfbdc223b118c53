// The measurements of `remcaps bench`: the speed of training, inference and threshold search.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "remcaps/runs/load.h"

namespace remcaps {

enum class BenchmarkTask {
  kTrain,   ///< training steps: batch, forward, loss, backward, pruning, update
  kInfer,   ///< passes of evaluate()
  kSearch,  ///< threshold searches, with a validation pass per threshold
};

struct BenchmarkOptions {
  BenchmarkTask task = BenchmarkTask::kTrain;
  torch::Device device = torch::kCPU;
  /// How long to measure. At least one step, pass or search is measured. Timing the phases takes
  /// another quarter of this time, except for a search on a CPU, which is timed only once.
  double seconds = 5;
  /// A trained network whose weights to use; null: random weights. Inference skips pruned weights,
  /// as it does outside of a benchmark.
  const LoadedRun* trained = nullptr;
  /// File for a timeline of a few steps or passes, or of one search; empty: none.
  std::filesystem::path trace;
};

struct BenchmarkResult {
  double images_per_s = 0;
  double step_ms = 0;  ///< of one batch
  int64_t steps = 0;   ///< batches measured
  /// Milliseconds of a step by phase, in order. On a GPU the sum is larger than step_ms, because
  /// the timing waits for the device after every phase.
  std::vector<std::pair<std::string, double>> phases_ms;
  /// On a GPU the peak of the allocator. On a CPU the growth of the process's peak resident memory.
  /// Both include the network but not the data set.
  double peak_memory_mib = 0;
};

/// The recipe "<shape>/<model>" if it exists, otherwise the network's defaults on the images of the
/// data set `shape`, with "key=value" overrides. UsageError for unknown names and for data sets
/// without a fixed image shape.
Recipe benchmark_recipe(const std::string& model, const std::string& shape,
                        const std::vector<std::string>& overrides);

/// The recipe of a trained network, with overrides.
Recipe benchmark_recipe(const LoadedRun& trained, const std::vector<std::string>& overrides);

/// Measures the functions that train and evaluate, with random images in the recipe's shape.
BenchmarkResult run_benchmark(Recipe recipe, const BenchmarkOptions& options);

}  // namespace remcaps
