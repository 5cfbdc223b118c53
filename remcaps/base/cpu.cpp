#include "remcaps/base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace remcaps {
namespace fs = std::filesystem;

bool cpu_has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__) && defined(__linux__)
namespace {

// AMX-TILE, AMX-BF16 and AVX512-BF16, which rounds to bfloat16.
bool cpuid_names_amx() {
  constexpr unsigned kTile = 1U << 24, kTileBf16 = 1U << 22, kVectorBf16 = 1U << 5;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kTile) == 0 || (edx & kTileBf16) == 0) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kVectorBf16) != 0;
}

// Since Linux 5.16 a process has to ask for tiles; older kernels give them to nobody.
bool kernel_grants_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool cpu_has_amx() {
  static const bool granted = cpu_has_avx512() && cpuid_names_amx() && kernel_grants_tiles();
  return granted;
}
#else
bool cpu_has_amx() {
  return false;
}
#endif

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

namespace {

// CPUs the process may run on; 0 if that is not known.
int allowed_cores() {
  // The kernel wants room for all CPUs it could have, which may be more than a cpu_set_t holds.
  constexpr int kMost = 1 << 20;
  for (int cpus = CPU_SETSIZE; cpus <= kMost; cpus *= 2) {
    std::vector<cpu_set_t> sets(static_cast<size_t>(cpus / CPU_SETSIZE));
    const size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) == 0) return CPU_COUNT_S(bytes, sets.data());
    if (errno != EINVAL) return 0;
  }
  return 0;
}

// From quota and period of one control group. "max" (version 2) and -1 (version 1) mean no quota.
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

std::optional<int> group_cores(const std::string& groups, const std::string& own) {
  std::optional<int> least;
  // "0::/a/b", or in version 1 "4:cpu,cpuacct:/a/b". A group's limit holds for all groups below it.
  std::ifstream in(own);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    fs::path group = unified ? fs::path(groups) : fs::path(groups) / "cpu";
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

}  // namespace remcaps
