#include "remcaps/torch/runtime.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <strings.h>
#include <sys/resource.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>
#include <vector>

#include "remcaps/base/cpu.h"
#include "remcaps/base/error.h"
#include "remcaps/base/parallel.h"
#include "remcaps/base/text.h"
#include "remcaps/base/version.h"
#include "remcaps/torch/compat.h"

namespace remcaps {

namespace {

constexpr const char* kReexecuted = "REMCAPS_REEXECUTED";

// A function of the OpenBLAS that is already loaded, whoever loaded it.
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

// What libtorch says, in its versions, if there is no memory.
constexpr std::array<std::string_view, 4> kOutOfMemory = {
    "not enough memory", "can't allocate memory", "out of memory", "bad_alloc"};

// A file opened later would otherwise get the number of a stream that was closed (2>&-), and
// messages would be written into it. Writing to these still fails.
void fill_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", O_RDONLY);
}

int libtorch_threads() {
  return at::in_parallel_region() ? 1 : at::get_num_threads();
}

// In a program with libtorch the kernels use as many threads as libtorch does.
[[maybe_unused]] const bool kernels_follow = (follow_thread_count(libtorch_threads), true);

void use_all_cores() {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;  // the user has decided
  at::set_num_threads(usable_cores());
}

// Every step allocates and frees tensors of some megabytes. Freed memory stays with the process:
// otherwise the kernel would map and zero the pages again each time.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// OpenBLAS takes a buffer for each thread that multiplies, keeps it, and waits for ever if there is
// no memory for it. Where memory is limited the buffers are therefore taken at the start.
void reserve_blas_memory() {
  constexpr size_t kBuffer = (128 << 20) + 8192;  // as OpenBLAS is built for this CPU
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto take = reinterpret_cast<void* (*)(int)>(openblas_symbol("blas_memory_alloc"));
  const auto give_back = reinterpret_cast<void (*)(void*)>(openblas_symbol("blas_memory_free"));
  if (take == nullptr || give_back == nullptr) return;
  std::vector<void*> buffers;
  const auto threads = static_cast<size_t>(at::get_num_threads());
  while (buffers.size() < threads) {
    void* probe = std::malloc(kBuffer);
    std::free(probe);
    if (probe == nullptr) break;
    buffers.push_back(take(0));
  }
  for (void* buffer : buffers) give_back(buffer);
  if (buffers.size() < threads) throw std::bad_alloc();
}

}  // namespace

void use_threads(int threads) {
  at::set_num_threads(threads);
  using SetThreads = void (*)(int);
  if (const auto set = reinterpret_cast<SetThreads>(openblas_symbol("openblas_set_num_threads")))
    set(threads);
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

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::Error*>(&error) == nullptr) return false;
  const std::string_view text = error.what();
  return std::any_of(kOutOfMemory.begin(), kOutOfMemory.end(),
                     [&](std::string_view part) { return text.find(part) != text.npos; });
}

std::string error_text(const std::exception& error) {
  if (is_out_of_memory(error)) return "not enough memory";
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error))
    return std::string(first_line(of_torch->what_without_backtrace()));
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return fmt::format("{}: {}", of_file->path1().string(), of_file->code().message());
  return error.what();
}

void prepare_process(char** argv) {
  fill_standard_streams();
  const std::string core = wanted_blas_core();
  if (!core.empty() && std::getenv(kReexecuted) == nullptr) {
    setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
    setenv(kReexecuted, "1", 1);
    execv("/proc/self/exe", argv);
    // If that is not possible, the program still works, only slower.
    unsetenv("OPENBLAS_CORETYPE");
  }
  std::signal(SIGXFSZ, SIG_IGN);
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

std::string default_device() {
  return torch::cuda::is_available() ? "cuda" : "cpu";
}

void check_device_name(const std::string& name) {
  const std::string_view prefix = "cuda:";
  const bool numbered = name.starts_with(prefix) && name.size() > prefix.size() &&
                        name.size() < prefix.size() + 4 &&
                        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
  if (name != "cpu" && name != "cuda" && !numbered)
    throw UsageError(fmt::format("--device {}: expected cpu, cuda or cuda:N", name));
}

torch::Device parse_device(const std::string& name) {
  check_device_name(name);
  if (name == "cpu") {
    reserve_blas_memory();
    return torch::Device(torch::kCPU);
  }
  check(torch::cuda::is_available(),
        "--device {}: no CUDA device is visible to this build of libtorch ({})", name,
        TORCH_VERSION);
  const int index = name == "cuda" ? 0 : std::stoi(name.substr(name.find(':') + 1));
  check(index < static_cast<int>(torch::cuda::device_count()),
        "--device {}: this machine has {} CUDA device(s)", name, torch::cuda::device_count());
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
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
