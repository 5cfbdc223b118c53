// Setting libtorch up for the machine the program runs on: threads, BLAS, devices.
#pragma once

#include <torch/types.h>

#include <exception>
#include <string>
#include <vector>

#include "remcaps/base/error.h"

namespace remcaps {

/// To be called first in main(). Works around two faults of Debian's libraries: ATen starts with
/// one thread, and OpenBLAS 0.3.21 falls back to its slowest kernels on Intel cores that it does
/// not know. OpenBLAS reads its setting when it is loaded, so the program starts itself again with
/// OPENBLAS_CORETYPE set (this call then does not return). Also ignores SIGXFSZ: a file that grows
/// beyond the limit (ulimit -f) is an error like a full disk, and does not end the process. If
/// stdin, stdout or stderr is closed, no file that is opened later gets its number.
void prepare_process(char** argv);

/// What an exception says to a person: one line without a library's internals.
std::string error_text(const std::exception& error);

/// Whether memory, of the host or of a GPU, could not be allocated.
bool is_out_of_memory(const std::exception& error);

/// Returns what `work` returns. If memory runs out in it, the Error names `file`.
template <typename Work>
auto with_enough_memory(const std::string& file, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) fail("{}: {}", file, error_text(error));
    throw;
  }
}

/// For a host program that embeds the library: sets the threads, and returns a warning if OpenBLAS
/// runs on the wrong kernels (empty if all is well).
std::string prepare_embedded();

/// From now on work is divided over so many CPU threads: libtorch's, OpenBLAS's and the project's
/// own.
void use_threads(int threads);

/// The core OpenBLAS should use on this CPU; empty if it finds the right one by itself.
std::string wanted_blas_core();

/// The core OpenBLAS uses now ("SkylakeX"); empty if another BLAS is loaded.
std::string current_blas_core();

/// Reads "cpu", "cuda" or "cuda:1". Error if there is no such device.
torch::Device parse_device(const std::string& name);

/// Error if the name is none of them. The machine need not have the device.
void check_device_name(const std::string& name);

/// "cuda" if there is a GPU, else "cpu".
std::string default_device();

/// What a run was computed on: "NVIDIA H200", or "CPU, 2 thread(s), avx512".
std::string device_name(torch::Device device);

struct RuntimeInfo {
  std::string remcaps, commit, torch, compiler, blas, blas_core, simd;
  int cores = 0, threads = 0;
  std::vector<std::string> devices;  ///< "NVIDIA H200, 139 GiB"
  std::vector<std::string>
      features;  ///< optional parts of the build: "matio", "highway", "curl", "cuda"
};
RuntimeInfo runtime_info();

}  // namespace remcaps
