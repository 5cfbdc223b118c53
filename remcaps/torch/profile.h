// A timeline of a piece of work, by libtorch's own profiler.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>

namespace remcaps {

/// For a timeline of work that comes later: UsageError where this libtorch was built without its
/// profiler (Kineto), as Debian's is, and Error says what stands in the file's way.
void prepare_profile(const std::filesystem::path& path);

/// Runs `work` and writes what it called, and on a GPU its kernels, as a Chrome trace (JSON), which
/// Perfetto and chrome://tracing open. Error where the file cannot be written.
void write_profile(const std::filesystem::path& path, torch::Device device,
                   const std::function<void()>& work);

}  // namespace remcaps
