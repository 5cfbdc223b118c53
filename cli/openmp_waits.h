// How OpenMP's threads wait for work.
#pragma once

namespace remcaps::cli {

/// To be called first in main(): gives the environment back what openmp_waits.cpp borrowed before
/// the libraries were initialised.
void restore_environment();

}  // namespace remcaps::cli
