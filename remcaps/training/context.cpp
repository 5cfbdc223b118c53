#include "remcaps/training/context.h"

#include "remcaps/data/batches.h"
#include "remcaps/data/catalog.h"

namespace remcaps {
namespace {

ModelContext context_of(const Recipe& recipe, const Dataset& images, int64_t classes) {
  const BatchSource source(images, recipe.dataset.augment, torch::kCPU);
  const std::vector<int64_t> shape = source.image_shape();
  ModelContext context;
  context.input = {shape[0], shape[1], shape[2]};
  context.classes = classes;
  context.mean = recipe.dataset.augment.mean;
  context.std = recipe.dataset.augment.std;
  return context;
}

}  // namespace

ModelContext model_context(const Recipe& recipe, const DataSplits& data) {
  return context_of(recipe, data.train, static_cast<int64_t>(data.class_names.size()));
}

std::optional<ModelContext> known_context(const Recipe& recipe) {
  const CatalogEntry& entry = catalog_entry(recipe.dataset.name);
  // Tiny ImageNet's class names come with its files, their number does not change.
  const int64_t classes =
      entry.name == "tiny-imagenet" ? 200 : static_cast<int64_t>(entry.class_names.size());
  if (entry.shape.empty() || classes == 0 || recipe.dataset.image_size > 0) return std::nullopt;
  Dataset one;
  one.images = torch::zeros({1, entry.shape[0], entry.shape[1], entry.shape[2]}, torch::kUInt8);
  one.labels = torch::zeros({1}, torch::kInt64);
  return context_of(recipe, one, classes);
}

}  // namespace remcaps
