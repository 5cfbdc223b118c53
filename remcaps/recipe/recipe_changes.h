// The differences between a run and the recipe of its name.
#pragma once

#include <map>
#include <string>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

using OptionMap = std::map<std::string, std::string>;  ///< key -> value, as yaml_paths() gives

/// The options of a recipe, with those that its network would choose. Builds the network.
OptionMap complete_options(Recipe recipe);

/// The options of `own` that differ from the expected ones, without options that cannot change the
/// results. Options that only one of the two has are not compared: one of them is of another
/// version.
OptionMap changed_options(const OptionMap& expected, const OptionMap& own);

class RecipeChanges {
 public:
  /// changed_options() from the present recipe. Empty if the program has no recipe of this name.
  OptionMap of(const std::string& recipe, const OptionMap& options);

 private:
  std::map<std::string, OptionMap> published_;  // by recipe: making its network takes a while
};

/// The changes that make it another experiment: all except how long a run may take and how the
/// machine computes.
OptionMap other_experiment(OptionMap changed);

}  // namespace remcaps
