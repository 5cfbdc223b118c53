// What the CPU can do beyond what the program is compiled for.
#pragma once

namespace remcaps {

/// The part of AVX-512 that every server core with any of it has had since 2017.
bool cpu_has_avx512();

/// Bfloat16 products in AMX tiles: the CPU has them, and the kernel lets this process use them (it
/// is asked once, for all threads).
bool cpu_has_amx();

}  // namespace remcaps
