// A timeline of a piece of work, by libtorch's own profiler.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>

namespace remcaps {

/// Runs `work` and writes what it called, and on a GPU its kernels, as a Chrome trace (JSON), which
/// Perfetto and chrome://tracing open. Error where this libtorch was built without its profiler, or
/// the file cannot be written.
void write_profile(const std::filesystem::path& path, torch::Device device,
                   const std::function<void()>& work);

}  // namespace remcaps
