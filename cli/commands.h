// One function per subcommand: each adds itself, its options, its help and its action to the program.
#pragma once

#include <CLI/CLI.hpp>

namespace remcaps::cli {

void add_info(CLI::App& app);

}  // namespace remcaps::cli
