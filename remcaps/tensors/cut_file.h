// Files that become shorter while they are read.
#pragma once

namespace remcaps {

/// For programs: safetensors files are mapped, and a byte that is no longer there raises SIGBUS.
/// From now on that ends the process with one line and exit code 1.
void exit_if_a_mapped_file_is_cut();

}  // namespace remcaps
