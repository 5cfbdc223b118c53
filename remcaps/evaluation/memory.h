// Estimates the memory of a training run before anything large is allocated.
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
  int64_t votes = 0;        ///< û of all routing layers in the plain code, at the batch size
  int64_t largest_votes = 0;
  std::string largest_layer;  ///< the layer with the largest votes

  /// With kernels that never write the votes, and with the plain code.
  int64_t fused() const { return weights + optimiser + activations; }
  int64_t plain() const { return fused() + votes; }
};

MemoryEstimate estimate_memory(const CapsNet& model, int64_t batch);

/// Bytes that can still be allocated on a device: the GPU's free memory, or what the machine and
/// the process's control group allow. 0 if that is not known.
int64_t available_memory(torch::Device device);

/// What is left of the limit of the control group in a folder such as /sys/fs/cgroup. Cached files
/// do not count as used: the data sets that were read would fill the limit. Nothing if there is no
/// limit.
std::optional<int64_t> group_available(const std::filesystem::path& group);

/// The number after a name at the beginning of a line, as in /proc/meminfo. `field` is the name
/// with its colon ("MemAvailable:").
std::optional<int64_t> read_field(const std::filesystem::path& file, const std::string& field);

/// Error if the training cannot fit into memory. Returns a warning if it fits only with a fused
/// kernel for every routing layer, otherwise an empty text.
std::string check_memory(const CapsNet& model, const Recipe& recipe, torch::Device device);

}  // namespace remcaps
