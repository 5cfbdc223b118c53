#include "remcaps/torch/runtime.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <strings.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "remcaps/base/cpu.h"
#include "remcaps/base/error.h"
#include "remcaps/base/version.h"
#include "remcaps/torch/compat.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr const char* kReexecuted = "REMCAPS_REEXECUTED";

// Finds the OpenBLAS that is already in the process, whatever loaded it.
void* openblas_symbol(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  for (const char* library : {"libblas.so.3", "libopenblas.so.0"})
    if (void* handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY)) {
      void* symbol = dlsym(handle, name);
      dlclose(handle);
      if (symbol != nullptr) return symbol;
    }
  return nullptr;
}

void use_all_cores() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;  // the user has decided
  at::set_num_threads(usable_cores());
}

// Tensors of some megabytes come and go with every step: memory that is free stays with the
// process, which would otherwise have its pages zeroed and mapped anew each time.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// CPUs the process may run on; 0 where that cannot be found out.
int allowed_cores() {
  // The kernel wants room for all the CPUs it could have, which may be more than a cpu_set_t holds.
  constexpr int kMost = 1 << 20;
  for (int cpus = CPU_SETSIZE; cpus <= kMost; cpus *= 2) {
    std::vector<cpu_set_t> sets(static_cast<size_t>(cpus / CPU_SETSIZE));
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) == 0) return CPU_COUNT_S(bytes, sets.data());
    if (errno != EINVAL) return 0;
  }
  return 0;
}

// Quota and period of one control group; the quota "max" (version 2) or -1 (version 1) is none.
std::optional<int> cores_of(std::istream&& quota, std::istream&& period) {
  int64_t each = 0, of = 0;
  if (!(quota >> each) || each <= 0 || !(period >> of) || of <= 0) return std::nullopt;
  return static_cast<int>(std::min<int64_t>(each / of + (each % of > 0), INT_MAX));
}

std::optional<int> cores_of_group(const fs::path& group) {
  std::ifstream both(group / "cpu.max");  // "200000 100000"
  std::string quota, period;
  if (both >> quota >> period)
    return cores_of(std::istringstream(quota), std::istringstream(period));
  return cores_of(std::ifstream(group / "cpu.cfs_quota_us"),
                  std::ifstream(group / "cpu.cfs_period_us"));
}

}  // namespace

std::optional<int> group_cores(const fs::path& groups, const fs::path& own) {
  std::optional<int> least;
  // "0::/a/b", or in version 1 "4:cpu,cpuacct:/a/b". What limits a group limits those below it.
  std::ifstream in(own);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    fs::path group = unified ? groups : groups / "cpu";
    const auto limit = [&] {
      const auto cores = cores_of_group(group);
      if (cores) least = std::min(least.value_or(*cores), *cores);
    };
    limit();
    for (const fs::path& step : fs::path(line.substr(second + 1)).relative_path()) {
      group /= step;
      limit();
    }
  }
  return least;
}

int usable_cores() {
  const int allowed = std::max(1, allowed_cores());
  return std::min(allowed, group_cores("/sys/fs/cgroup", "/proc/self/cgroup").value_or(allowed));
}

std::string current_blas_core() {
  using CoreName = char* (*)();
  const auto core = reinterpret_cast<CoreName>(openblas_symbol("openblas_get_corename"));
  return core == nullptr ? "" : core();
}

std::string wanted_blas_core() {
  const std::string current = current_blas_core();
  if (current.empty() || std::getenv("OPENBLAS_CORETYPE") != nullptr) return "";
#if defined(__x86_64__)
  if (cpu_has_avx512())
    return strcasecmp(current.c_str(), "skylakex") == 0 ||
                   strcasecmp(current.c_str(), "cooperlake") == 0 ||
                   strcasecmp(current.c_str(), "sapphirerapids") == 0
               ? ""
               : "SKYLAKEX";
  const bool slow = strcasecmp(current.c_str(), "prescott") == 0 ||
                    strcasecmp(current.c_str(), "generic") == 0 ||
                    strcasecmp(current.c_str(), "core2") == 0;
  if (slow && __builtin_cpu_supports("avx2") != 0) return "HASWELL";
#endif
  return "";
}

void prepare_process(char** argv) {
  const std::string core = wanted_blas_core();
  if (!core.empty() && std::getenv(kReexecuted) == nullptr) {
    setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
    setenv(kReexecuted, "1", 1);
    execv("/proc/self/exe", argv);
    // Where that is not possible the program still works, only slower.
    unsetenv("OPENBLAS_CORETYPE");
  }
  keep_freed_memory();
  use_all_cores();
}

std::string prepare_embedded() {
  use_all_cores();
  const std::string core = wanted_blas_core();
  if (core.empty()) return "";
  return fmt::format(
      "OpenBLAS runs its {} kernels on this CPU; start the program with OPENBLAS_CORETYPE={} in "
      "the "
      "environment (matrix products are several times faster)",
      current_blas_core(), core);
}

std::string simd_level() {
  std::string level = "sse2";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) level = "avx2";
  if (cpu_has_avx512()) level = "avx512";
#elif defined(__aarch64__)
  level = "neon";
#endif
  return cpu_has_amx() ? level + "+amx" : level;
}

std::string default_device() {
  return torch::cuda::is_available() ? "cuda" : "cpu";
}

torch::Device parse_device(const std::string& name) {
  const bool cuda = name == "cuda" || name.rfind("cuda:", 0) == 0;
  if (name != "cpu" && !cuda)
    throw UsageError(fmt::format("--device {}: expected cpu, cuda or cuda:N", name));
  if (!cuda) return torch::Device(torch::kCPU);
  check(torch::cuda::is_available(),
        "--device {}: no CUDA device is visible to this build of libtorch ({})", name,
        TORCH_VERSION);
  torch::Device device(torch::kCUDA, 0);
  if (name.size() > 5) {
    char* end = nullptr;
    const long index = std::strtol(name.c_str() + 5, &end, 10);
    if (*end != '\0' || end == name.c_str() + 5)
      throw UsageError(fmt::format("--device {}: expected cpu, cuda or cuda:N", name));
    check(index >= 0 && index < static_cast<long>(torch::cuda::device_count()),
          "--device {}: this machine has {} CUDA device(s)", name, torch::cuda::device_count());
    device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  }
  return device;
}

std::string device_name(torch::Device device) {
  if (!device.is_cuda())
    return fmt::format("CPU, {} thread(s), {}", at::get_num_threads(), simd_level());
  const std::string name =
      cuda_device_names().at(static_cast<size_t>(std::max<int>(device.index(), 0)));
  return name.substr(0, name.rfind(", "));  // without its memory
}

RuntimeInfo runtime_info() {
  RuntimeInfo info;
  info.remcaps = kVersion;
  info.commit = kCommit;
  info.torch = TORCH_VERSION;
  info.compiler = fmt::format("g++ {}", __VERSION__);
  info.blas_core = current_blas_core();
  info.blas = info.blas_core.empty() ? "not OpenBLAS" : "OpenBLAS";
  info.simd = simd_level();
  info.cores = usable_cores();
  info.threads = at::get_num_threads();
  info.devices = cuda_device_names();
  info.features = built_features();
  return info;
}

}  // namespace remcaps
