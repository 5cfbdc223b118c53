#include "remcaps/report/recipe_changes.h"

#include <algorithm>
#include <cstdlib>

#include "remcaps/recipe/context.h"

namespace remcaps {
namespace {

// What decides neither the weights nor the numbers a run ends with. The seed has a key of its own.
bool leaves_the_result_alone(const std::string& key) {
  return key == "about" || key == "train.seed" || key == "cuda_graph" ||
         key.starts_with("metrics.") || key.starts_with("train.checkpoint_");
}

// Where the files lie is a matter of the machine; a recipe that needs one says what it must be.
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

const OptionMap& RecipeChanges::published(const std::string& recipe) {
  const auto [entry, fresh] = published_.try_emplace(recipe);
  if (!fresh) return entry->second;
  const std::vector<std::string> known = recipe_names();
  if (std::find(known.begin(), known.end(), recipe) == known.end()) return entry->second;
  Recipe own = load_recipe(recipe);
  // A network knows the options that its recipe leaves at their defaults.
  if (auto context = known_context(own)) {
    context->load_pretrained = false;
    build_model(own, *context);
  }
  return entry->second = yaml_paths(own.to_yaml());
}

OptionMap RecipeChanges::of(const std::string& recipe, const OptionMap& options) {
  OptionMap changed;
  for (const auto& [key, value] : published(recipe)) {
    const auto own = options.find(key);
    if (own != options.end() && !leaves_the_result_alone(key) && !is_place(key) &&
        !same_value(own->second, value))
      changed[key] = own->second;
  }
  return changed;
}

OptionMap other_experiment(OptionMap changed) {
  std::erase_if(changed, [](const auto& option) { return keeps_the_experiment(option.first); });
  return changed;
}

}  // namespace remcaps
