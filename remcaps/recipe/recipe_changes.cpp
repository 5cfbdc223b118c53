#include "remcaps/recipe/recipe_changes.h"

#include <algorithm>
#include <cstdlib>

#include "remcaps/recipe/context.h"

namespace remcaps {
namespace {

// Options that change neither the weights nor the numbers. The seed is compared elsewhere.
bool leaves_the_result_alone(const std::string& key) {
  return key == "about" || key == "train.seed" || key == "train.start_recipe" ||
         key == "cuda_graph" || key.starts_with("metrics.") || key.starts_with("train.checkpoint_");
}

// Paths of files differ from machine to machine.
bool is_place(const std::string& key) {
  return key == "dataset.folder" || key == "model.backbone_weights" || key == "train.start_from";
}

bool keeps_the_experiment(const std::string& key) {
  return key == "train.minutes" || key == "train.epochs" || key == "precision" ||
         key == "kernels" || key == "deterministic";
}

// 1e-3 and 0.001 are the same value.
bool same_value(const std::string& a, const std::string& b) {
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  const bool numbers = !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0';
  return numbers ? x == y : a == b;
}

}  // namespace

OptionMap complete_options(Recipe recipe) {
  // Building the network resolves the options that the recipe leaves at their defaults.
  if (auto context = known_context(recipe)) {
    context->load_pretrained = false;
    build_model(recipe, *context);
  }
  return yaml_paths(recipe.to_yaml());
}

OptionMap changed_options(const OptionMap& expected, const OptionMap& own) {
  OptionMap changed;
  for (const auto& [key, value] : expected) {
    const auto found = own.find(key);
    if (found != own.end() && !leaves_the_result_alone(key) && !is_place(key) &&
        !same_value(found->second, value))
      changed[key] = found->second;
  }
  return changed;
}

OptionMap RecipeChanges::of(const std::string& recipe, const OptionMap& options) {
  const auto [entry, fresh] = published_.try_emplace(recipe);
  const std::vector<std::string> known = fresh ? recipe_names() : std::vector<std::string>();
  if (std::find(known.begin(), known.end(), recipe) != known.end())
    entry->second = complete_options(load_recipe(recipe));
  return changed_options(entry->second, options);
}

OptionMap other_experiment(OptionMap changed) {
  std::erase_if(changed, [](const auto& option) { return keeps_the_experiment(option.first); });
  return changed;
}

}  // namespace remcaps
