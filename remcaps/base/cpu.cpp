#include "remcaps/base/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace remcaps {

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

// A process has no tiles until it asks for them (Linux 5.16; before, nobody has).
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

}  // namespace remcaps
