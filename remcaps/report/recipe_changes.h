// In what a run differs from the recipe of its name.
#pragma once

#include <map>
#include <string>

namespace remcaps {

using OptionMap = std::map<std::string, std::string>;  ///< as yaml_paths() has them

class RecipeChanges {
 public:
  /// Of the options that decide a run's numbers those that are not what the recipe, as it is now,
  /// has. Nothing where it is a recipe of the user's own.
  OptionMap of(const std::string& recipe, const OptionMap& options);

 private:
  const OptionMap& published(const std::string& recipe);

  std::map<std::string, OptionMap> published_;  // by recipe: making its network takes a while
};

/// The changes that make another experiment of the recipe: not how long a run may take, and not how
/// the machine computes.
OptionMap other_experiment(OptionMap changed);

}  // namespace remcaps
