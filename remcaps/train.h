/// @file
/// Training as one call.
#pragma once

#include <filesystem>
#include <string>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

/// Where train() works.
struct TrainingPlace {
  std::filesystem::path out = "runs";  ///< the run's folder is out/seed-42, always a new one
  std::string data = "";               ///< folder of the data sets; empty: the program's default
  std::string device = "cpu";          ///< "cpu", "cuda" or "cuda:1"
};

/// What a run ended with. Accuracies are of the test images, 0 to 1.
struct TrainingResult {
  std::filesystem::path folder;  ///< Network::load() takes it
  int64_t epochs = 0;
  double accuracy = 0;
  double accuracy_quantized = 0;  ///< with quantized couplings
  double entropy = 0;             ///< of the last layer's parse trees, in bits
  double sparsity = 0;            ///< share of pruned weights
};

/// Trains a recipe: load_recipe() reads one, or fill in a Recipe of your own. Progress goes to
/// stderr.
///
/// @throws Interrupted  after SIGINT or SIGTERM; the state is saved.
/// @throws Error        if the data are missing, or a loss is not finite.
TrainingResult train(const Recipe& recipe, const TrainingPlace& place = {});

}  // namespace remcaps
