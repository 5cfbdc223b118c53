#include "remcaps/train.h"

#include "remcaps/torch/runtime.h"
#include "remcaps/training/launch.h"

namespace remcaps {

TrainingResult train(const Recipe& recipe, const TrainingPlace& place) {
  const std::filesystem::path root = data_root(place.data);
  const DataSplits data = load_dataset(recipe.dataset, root);
  const auto trainer = start_run(recipe, data, place.out, root, parse_device(place.device));
  const RunSummary summary = trainer->run();
  TrainingResult result{.folder = summary.folder,
                        .epochs = summary.epochs,
                        .accuracy = summary.test.plain.accuracy,
                        .sparsity = summary.sparsity};
  if (summary.test.trees) {
    result.accuracy_quantized = summary.test.trees->accuracy_quantized;
    result.entropy = summary.test.trees->last().entropy;
  }
  return result;
}

}  // namespace remcaps
