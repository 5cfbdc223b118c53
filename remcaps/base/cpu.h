// The CPU: what it can do beyond what the program is compiled for, and how many cores are ours.
#pragma once

#include <optional>
#include <string>

namespace remcaps {

/// The part of AVX-512 that all server cores with any of it have had since 2017.
bool cpu_has_avx512();

/// Bfloat16 products in AMX tiles: the CPU has them, and the kernel lets this process use them. The
/// kernel is asked once, for all threads.
bool cpu_has_amx();

/// "avx512", "avx2", "sse2" or "neon"; "+amx" is appended if cpu_has_amx().
std::string simd_level();

/// How many CPU threads this process may use: the cores it may run on, or fewer if its control
/// groups limit it.
int usable_cores();

/// How many CPUs the control groups leave a process, rounded up. `groups` is the folder where they
/// are mounted (/sys/fs/cgroup, version 1 or 2), `own` the file that names those of the process
/// (/proc/self/cgroup). A container sees its own group at the root. Nothing if there is no limit.
std::optional<int> group_cores(const std::string& groups, const std::string& own);

}  // namespace remcaps
