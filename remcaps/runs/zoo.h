// The trained networks that come with the program (the zoo).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace remcaps {

/// Whether a text is a name of the zoo: "zoo:fashion-mnist/dr-capsnet-rem".
bool is_zoo_name(const std::string& run);

/// The weights file of such a name, found in resource_folders("models"). UsageError suggests the
/// nearest name.
std::filesystem::path find_in_zoo(const std::string& run);

/// The name under which find_in_zoo() finds a file. Nothing if the file is in none of these
/// folders.
std::optional<std::string> zoo_name_of(const std::filesystem::path& file);

/// All names, without "zoo:", sorted.
std::vector<std::string> zoo_names();

}  // namespace remcaps
