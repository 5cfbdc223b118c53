// Training a recipe, and the numbers of a run.
#include <nlohmann/json.hpp>

#include "python/src/bindings.h"
#include "remcaps/base/files.h"
#include "remcaps/base/json.h"
#include "remcaps/runs/load.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/launch.h"

namespace remcaps::python {
namespace {

namespace fs = std::filesystem;

using OnEpoch = std::function<void(std::string)>;  // gets the metrics so far, as JSON

std::string metrics(const RunFolder& folder) {
  return json_text(read_metrics(folder.metrics()));
}

// Trains until a limit of the recipe. Returns the summary as JSON.
std::string run(Trainer& trainer, const OnEpoch& on_epoch) {
  if (on_epoch) trainer.on_epoch([&] { on_epoch(metrics(trainer.folder())); });
  const RunSummary summary = trainer.run();
  stop_between_runs();
  return json_text(to_json(summary));
}

std::string train(const std::string& name, const std::vector<std::string>& overrides,
                  const std::string& out, const std::string& data, const std::string& device,
                  const OnEpoch& on_epoch) {
  const Recipe recipe = load_recipe(name, overrides);
  const fs::path root = data_root(data);
  const DataSplits splits = load_dataset(recipe.dataset, root);
  stop_if_interrupted();
  const auto trainer =
      start_run(recipe, splits, out.empty() ? default_runs_folder(recipe) : fs::path(out), root,
                parse_device(device));
  return run(*trainer, on_epoch);
}

std::string resume(const std::string& path, const std::string& data, const std::string& device,
                   const std::optional<int64_t>& epochs, const OnEpoch& on_epoch) {
  const RunFolder folder = RunFolder::open(path);
  Recipe recipe = read_run_recipe(folder);
  if (epochs) recipe.train.epochs = *epochs;
  const DataSplits splits = load_dataset(recipe.dataset, run_data_root(folder, data));
  stop_if_interrupted();
  Trainer trainer(recipe, splits, folder, parse_device(device));
  return run(trainer, on_epoch);
}

}  // namespace

void bind_training(py::module_& module) {
  module.def("train", &train, WithoutGil());
  module.def("resume", &resume, WithoutGil());
  module.def("metrics", [](const std::string& folder) { return metrics(RunFolder::open(folder)); });
  module.def("summary", [](const std::string& path) {
    const RunFolder folder = RunFolder::open(path);
    check(fs::exists(folder.summary()), "{}: the run has not ended yet: no summary.json", path);
    return read_file(folder.summary());
  });
  module.def("recipe_names", &recipe_names);
}

}  // namespace remcaps::python
