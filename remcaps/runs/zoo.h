// The trained networks that come with the program, by name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace remcaps {

/// Whether a run is named as one of the zoo: "zoo:fashion-mnist/dr-capsnet-rem".
bool is_zoo_name(const std::string& run);

/// The weights file of such a name, looked for in the resource folders "models" (resources.h).
/// UsageError suggests the nearest.
std::filesystem::path find_in_zoo(const std::string& run);

/// The name by which find_in_zoo() finds a file, "zoo:fashion-mnist/dr-capsnet-rem"; nothing where
/// it lies in no resource folder "models".
std::optional<std::string> zoo_name_of(const std::filesystem::path& file);

/// All names, without "zoo:", sorted.
std::vector<std::string> zoo_names();

}  // namespace remcaps
