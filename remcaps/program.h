/// @file
/// The command-line program as a function.
#pragma once

namespace remcaps {

/// Does what the program `remcaps` does with these arguments, and returns its exit code.
///
/// A program that registers a network, a routing algorithm or a pruning strategy of its own and
/// then calls this function has every command for it: train, resume, eval, entropy, explain,
/// report. Call it first thing in main(): it may replace the process by itself once, to set
/// variables that libraries read when they are loaded.
int run_program(int argc, char** argv);

}  // namespace remcaps
