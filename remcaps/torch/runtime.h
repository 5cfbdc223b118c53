// The machine the program runs on: threads, BLAS, SIMD, devices.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace remcaps {

/// Mends Debian's two traps, first thing in main(): ATen starts with one thread, and OpenBLAS
/// 0.3.21 falls back to its slowest kernels on Intel cores it does not know. The second can only be
/// mended before the library loads: the program re-executes itself with OPENBLAS_CORETYPE set (this
/// call then does not return).
void prepare_process(char** argv);

/// The same for a host program that embeds the library: sets the threads and returns a warning
/// where OpenBLAS runs on the wrong kernels (empty where all is well).
std::string prepare_embedded();

/// The core OpenBLAS should use on this CPU, where it would not find it by itself; empty otherwise.
std::string wanted_blas_core();

/// The core OpenBLAS uses now ("SkylakeX"), empty where another BLAS is loaded.
std::string current_blas_core();

/// "avx512", "avx2", "sse2" and so on; "+amx" where cpu_has_amx().
std::string simd_level();

/// CPU threads this process may use: of those it may run on, as many as its control groups let it
/// keep busy.
int usable_cores();

/// CPUs that control groups leave a process, rounded up: `groups` is where they are mounted
/// (/sys/fs/cgroup, version 1 or 2), `own` names those of the process (/proc/self/cgroup). A
/// container sees its own group at the root. Nothing where there is no limit.
std::optional<int> group_cores(const std::filesystem::path& groups,
                               const std::filesystem::path& own);

/// "cpu", "cuda" or "cuda:1", checked: Error where there is no such device.
torch::Device parse_device(const std::string& name);

/// "cuda" where a GPU is there, else "cpu".
std::string default_device();

/// What a run was computed on: "NVIDIA H200", or "CPU, 2 thread(s), avx512".
std::string device_name(torch::Device device);

struct RuntimeInfo {
  std::string remcaps, commit, torch, compiler, blas, blas_core, simd;
  int cores = 0, threads = 0;
  std::vector<std::string> devices;  ///< "NVIDIA H200, 139 GiB"
  std::vector<std::string>
      features;  ///< optional parts built in: "matio", "highway", "curl", "cuda"
};
RuntimeInfo runtime_info();

}  // namespace remcaps
