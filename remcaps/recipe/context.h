// What a network must know of the data it is built for.
#pragma once

#include <optional>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

/// From the data themselves.
ModelContext model_context(const Recipe& recipe, const DataSplits& data);

/// Without reading any data, where the recipe's data set always has the same images and classes;
/// nothing for folders of images.
std::optional<ModelContext> known_context(const Recipe& recipe);

}  // namespace remcaps
