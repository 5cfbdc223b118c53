// A timeline of a piece of work, by libtorch's own profiler.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>

namespace remcaps {

/// For a timeline that will be written later. UsageError if this libtorch was built without its
/// profiler (Kineto), as Debian's is; Error if the file cannot be written.
void prepare_profile(const std::filesystem::path& path);

/// Runs `work` and writes the operations it called, on a GPU with their kernels, as a Chrome trace
/// (JSON) for Perfetto or chrome://tracing. Error if the file cannot be written.
void write_profile(const std::filesystem::path& path, torch::Device device,
                   const std::function<void()>& work);

}  // namespace remcaps
