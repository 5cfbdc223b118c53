// Networks of others: tensors under our names become a weights file.
#include "python/src/bindings.h"
#include "remcaps/data/descriptor.h"
#include "remcaps/models/network_plan.h"
#include "remcaps/recipe/context.h"
#include "remcaps/runs/weights.h"

namespace remcaps::python {
namespace {

// Writes `tensors`, read from `source`, as the weights of a recipe's network. Published layouts
// agree with ours up to a reshape.
void save_network(const std::string& out, const std::string& source, const std::string& name,
                  const std::vector<std::string>& overrides, TensorMap tensors) {
  Recipe recipe = load_recipe(name, overrides);
  std::optional<ModelContext> context = known_context(recipe);
  if (!context)
    throw UsageError(
        fmt::format("{}: the images of {} have no fixed size; expected another data set", name,
                    recipe.dataset.name));
  context->load_pretrained = false;
  const WeightLimit limit(source, numbers_in(tensors));
  const auto model = build_model(recipe, *context);
  for (const auto& [key, target] : weights_of(*model)) {
    const auto found = tensors.find(key);
    if (found != tensors.end() && found->second.numel() == target.numel())
      found->second = found->second.reshape(target.sizes());
  }
  load_weights(*model, tensors, source);
  save_weights(out, *model,
               {recipe, *context, find_dataset(recipe.dataset.name).class_names, /*epoch=*/0});
}

}  // namespace

void bind_convert(py::module_& module) {
  module.def("save_network", &save_network, WithoutGil());
}

}  // namespace remcaps::python
