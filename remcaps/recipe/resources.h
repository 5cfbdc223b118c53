// The folders of the files that come with the program: recipes and trained networks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps {

/// Where to look for `kind`, "recipes" or "models", in this order: $REMCAPS_RECIPES, ./recipes,
/// recipes/ of the checkout in which the program was built, and PREFIX/share/remcaps/recipes of
/// an installed program.
std::vector<std::filesystem::path> resource_folders(const std::string& kind);

/// Adds an install prefix whose share/remcaps/ is searched last. Returns true.
bool add_resource_prefix(const std::filesystem::path& prefix);

}  // namespace remcaps
