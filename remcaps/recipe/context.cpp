#include "remcaps/recipe/context.h"

#include "remcaps/base/error.h"
#include "remcaps/data/augment.h"
#include "remcaps/data/descriptor.h"

namespace remcaps {
namespace {

// `image`: [C, H, W] as the data set has it.
ModelContext context_of(const Recipe& recipe, const std::vector<int64_t>& image, int64_t classes) {
  check_augment(recipe.dataset.augment, image);
  const std::vector<int64_t> shape = augmented_shape(recipe.dataset.augment, image);
  ModelContext context;
  context.input = {shape[0], shape[1], shape[2]};
  context.classes = classes;
  context.mean = recipe.dataset.augment.mean;
  context.std = recipe.dataset.augment.std;
  return context;
}

}  // namespace

ModelContext model_context(const Recipe& recipe, const DataSplits& data) {
  check(data.train.size() > 0, "{}: the training split has no images", recipe.dataset.name);
  return context_of(recipe, data.train.images.sizes().slice(1).vec(),
                    static_cast<int64_t>(data.class_names.size()));
}

std::optional<ModelContext> known_context(const Recipe& recipe) {
  const DatasetDescriptor& dataset = find_dataset(recipe.dataset.name);
  if (dataset.shape.empty() || dataset.classes() == 0 || recipe.dataset.image_size > 0)
    return std::nullopt;
  return context_of(recipe, dataset.shape, dataset.classes());
}

}  // namespace remcaps
