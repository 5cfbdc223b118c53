#pragma once

#include <string>
#include <vector>

namespace remcaps {

/// The release, "0.1.0".
extern const char* const kVersion;

/// The commit the build was configured from, "c35d5142f0aa"; empty if that is not known.
extern const char* const kCommit;

/// Optional parts this build has: "matio", "highway", "curl", "cuda".
std::vector<std::string> built_features();

}  // namespace remcaps
