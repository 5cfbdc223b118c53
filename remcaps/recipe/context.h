// The context of a recipe's network: input shape, classes and normalisation.
#pragma once

#include <optional>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

/// From the loaded data.
ModelContext model_context(const Recipe& recipe, const DataSplits& data);

/// Without reading data, if the recipe's data set always has the same image shape and classes.
/// Nothing for folders of images.
std::optional<ModelContext> known_context(const Recipe& recipe);

}  // namespace remcaps
