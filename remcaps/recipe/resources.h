// Where the files that come with the program are: recipes and trained networks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps {

/// Places to look for "recipes" or "models", best first: $REMCAPS_RECIPES or $REMCAPS_MODELS,
/// ./recipes, recipes/ of the checkout that the program was built in, and
/// <prefix>/share/remcaps/recipes of an installed program.
std::vector<std::filesystem::path> resource_folders(const std::string& kind);

}  // namespace remcaps
