#pragma once

#include <filesystem>

namespace remcaps {

// Throws unless the elements of a MAT-5 file fit into each other and hold as many numbers as their
// shapes say. libmatio takes memory for whatever a header promises, so this is known before it
// reads.
void check_mat_structure(const std::filesystem::path& path);

}  // namespace remcaps
