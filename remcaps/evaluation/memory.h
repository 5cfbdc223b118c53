// What a training run will need of a device's memory, known before anything large is allocated.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <optional>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

/// Bytes, all tensors float32.
struct MemoryEstimate {
  int64_t weights = 0;
  int64_t optimiser = 0;    ///< gradients and Adam's two moments
  int64_t activations = 0;  ///< kept for backward, at the batch size
  int64_t votes = 0;        ///< û of all routing layers on the plain path, at the batch size
  int64_t largest_votes = 0;
  std::string largest_layer;  ///< whose votes are the largest

  /// With kernels that never write the votes, and on the plain path.
  int64_t fused() const { return weights + optimiser + activations; }
  int64_t plain() const { return fused() + votes; }
};

MemoryEstimate estimate_memory(const CapsNet& model, int64_t batch);

/// Bytes that can still be allocated on a device: the GPU's free memory, or what the machine and
/// this process's control group leave. 0 where that is not known.
int64_t available_memory(torch::Device device);

/// What the control group in a folder such as /sys/fs/cgroup leaves of its limit, files that are
/// only cached not counted: data sets that were read would otherwise fill it. Nothing where it has
/// no limit.
std::optional<int64_t> group_available(const std::filesystem::path& group);

/// The number behind a name at the beginning of a line, as in /proc/meminfo; `field` is the name as
/// it stands there ("MemAvailable:").
std::optional<int64_t> read_field(const std::filesystem::path& file, const std::string& field);

/// Before anything is allocated for training: Error where it cannot fit. Returns a warning where it
/// fits only if every routing layer has a fused kernel; empty where all is well.
std::string check_memory(const CapsNet& model, const Recipe& recipe, torch::Device device);

}  // namespace remcaps
