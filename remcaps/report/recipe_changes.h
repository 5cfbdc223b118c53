// The differences between a run and the recipe of its name.
#pragma once

#include <map>
#include <string>

namespace remcaps {

using OptionMap = std::map<std::string, std::string>;  ///< key -> value, as yaml_paths() gives

class RecipeChanges {
 public:
  /// The options that differ from the present recipe, without options that cannot change the
  /// results. Empty if the program has no recipe of this name.
  OptionMap of(const std::string& recipe, const OptionMap& options);

 private:
  const OptionMap& published(const std::string& recipe);

  std::map<std::string, OptionMap> published_;  // by recipe: making its network takes a while
};

/// The changes that make it another experiment: all except how long a run may take and how the
/// machine computes.
OptionMap other_experiment(OptionMap changed);

}  // namespace remcaps
