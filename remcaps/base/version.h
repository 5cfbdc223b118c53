#pragma once

#include <string>
#include <vector>

namespace remcaps {

/// The release, "0.1.0".
extern const char* const kVersion;

/// Optional parts this build has: "matio", "highway", "curl", "cuda".
std::vector<std::string> built_features();

}  // namespace remcaps
