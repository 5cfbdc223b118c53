// How fast a network trains, infers and is searched for its threshold: the numbers of `remcaps
// bench`.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "remcaps/runs/load.h"

namespace remcaps {

enum class BenchmarkTask {
  kTrain,   ///< the trainer's steps: a batch of images, forward, loss, backward, pruning, update
  kInfer,   ///< passes of evaluate()
  kSearch,  ///< LOBSTER's threshold search, a validation pass for every threshold it tries
};

struct BenchmarkOptions {
  BenchmarkTask task = BenchmarkTask::kTrain;
  torch::Device device = torch::kCPU;
  /// Of measuring, and at least one step, pass or search. Phases take another quarter of it, but
  /// for a search on a CPU, where they are timed at the same time.
  double seconds = 5;
  /// A trained network whose weights to use; none: random ones. Inference then skips what pruning
  /// took, as it does outside of a benchmark.
  const LoadedRun* trained = nullptr;
  /// Where a timeline of a few steps or passes, or of one search, goes; empty: none.
  std::filesystem::path trace;
};

struct BenchmarkResult {
  double images_per_s = 0;
  double step_ms = 0;  ///< of one batch
  int64_t steps = 0;   ///< batches measured
  /// Milliseconds of a step by phase, in their order. On a GPU they add up to more than step_ms:
  /// what is timed waits for the device after every phase.
  std::vector<std::pair<std::string, double>> phases_ms;
  /// GPU: the allocator's peak. CPU: the growth of the process's peak resident memory. Both without
  /// the data set, with the network.
  double peak_memory_mib = 0;
};

/// The recipe of a network on a data set's image shape: "<shape>/<model>" where there is one, else
/// the network's defaults; then "key=value" overrides. UsageError for unknown names and for data
/// sets whose images have no fixed shape.
Recipe benchmark_recipe(const std::string& model, const std::string& shape,
                        const std::vector<std::string>& overrides);

/// The recipe of a trained network, with overrides.
Recipe benchmark_recipe(const LoadedRun& trained, const std::vector<std::string>& overrides);

/// Synthetic images of the recipe's data set through the very functions that train and evaluate.
BenchmarkResult run_benchmark(Recipe recipe, const BenchmarkOptions& options);

}  // namespace remcaps
