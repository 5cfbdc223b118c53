// A recipe: everything that decides what a training run computes, read from YAML and written back.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/capsule/loss.h"
#include "remcaps/data/dataset.h"
#include "remcaps/models/model.h"
#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

/// The recipe's `loss` section.
struct LossOptions {
  double m_plus = 0.9, m_minus = 0.1, lambda = 0.5;  ///< margin loss (paper eq. 1)
  double reconstruction = 0.0005;  ///< weight of the summed squared error, where there is a decoder
  int64_t switch_epoch = -1;       ///< from this epoch on the `switched_` margins hold; -1: never
  double switched_m_plus = 0.95, switched_m_minus = 0.05, switched_lambda = 0.8;

  /// The margins that hold in an epoch.
  MarginOptions margin(int64_t epoch) const;
};

/// The recipe's `train` section.
struct TrainOptions {
  int64_t batch = 128;
  double lr = 0.001, lr_decay = 0.99, min_lr = 0;  ///< lr of epoch e: max(min_lr, lr * lr_decay^e)
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;   ///< Adam's
  int64_t epochs = 0;                              ///< 0: no limit
  double minutes = 0;                              ///< of training time; 0: no limit
  /// Stop once validation accuracy reaches this, and evaluate the network as it is then (affNIST's
  /// under-trained networks); 0: never.
  double stop_accuracy = 0;
  int64_t patience = 200;  ///< stop this many epochs after the best validation loss; 0: never
  int64_t seed = 42;
  /// A run folder or weights file whose tensors the network starts with, where it has them.
  std::string start_from;
  /// Patterns of layers or parameters that stay as they are ("class", "conv*").
  std::vector<std::string> freeze;
  /// The end of an epoch saves last and state with every new best, else every checkpoint_epochs and
  /// not before so many seconds have passed since an epoch was last saved.
  int64_t checkpoint_epochs = 1;
  double checkpoint_seconds = 10;
  int64_t checkpoint_steps = 0;    ///< state also every so many steps of an epoch; 0: not by steps
  double checkpoint_minutes = 10;  ///< and after so many minutes within an epoch; 0: not by time

  double lr_at(int64_t epoch) const;
};

/// The recipe's `quantize` section: what the measurements of parse trees do with couplings.
struct QuantizeOptions {
  std::vector<int64_t> levels = {11};  ///< K per routing layer, or one for all; 0: leave it alone
  std::string form = "uniform";        ///< "uniform" or "bins", see Quantizer

  /// One quantizer per routing layer. Error where the numbers of levels and layers do not match.
  std::vector<std::optional<Quantizer>> quantizers(size_t routing_layers) const;
};

/// The recipe's `metrics` section.
struct MetricsOptions {
  int64_t every =
      10;  ///< test accuracy and parse trees are measured every so many epochs; 0: never
  std::vector<int64_t> keep_epochs;  ///< epochs (from 0) whose weights are kept as epoch-NNNN
};

struct Recipe {
  std::string name;   ///< "fashion-mnist/eff-capsnet", for messages and the run folder
  std::string about;  ///< one line for people
  DatasetOptions dataset;
  std::string model = "eff-capsnet";
  YAML::Node model_options;  ///< the `model` section without `name`; make_network() checks it
  LossOptions loss;
  TrainOptions train;
  YAML::Node pruning;  ///< the `pruning` section, checked and resolved
  QuantizeOptions quantize;
  MetricsOptions metrics;
  std::string kernels = "fused";      ///< "fused" or "reference"
  bool deterministic = false;         ///< only deterministic algorithms on a GPU (a CPU always is)
  std::string precision = "float32";  ///< "float32", "tf32" or "bf16"
  bool cuda_graph = true;             ///< replay a recorded step on a GPU, where that is possible

  KernelPath kernel_path() const {
    return kernels == "fused" ? KernelPath::kFused : KernelPath::kReference;
  }
  /// Whether weights are pruned in this run.
  bool prunes() const;
  /// Whether the last checkpoint of a run counts: where weights are pruned, and where the run stops
  /// at an accuracy.
  bool counts_last() const { return prunes() || train.stop_accuracy > 0; }

  /// Every key with its value; parse_recipe() reads it back.
  YAML::Node to_yaml() const;
  std::string to_text() const;
};

/// The file of a recipe: an existing file as it is, or "fashion-mnist/eff-capsnet" looked up in
/// the places of resource_folders("recipes"). UsageError suggests the nearest.
std::filesystem::path find_recipe(const std::string& name_or_path);

/// Every recipe that find_recipe() would find by name.
std::vector<std::string> recipe_names();

/// Reads a recipe with its includes, then applies "key=value" overrides. UsageError for unknown
/// keys (with the nearest known one) and values out of range.
Recipe load_recipe(const std::string& name_or_path, const std::vector<std::string>& overrides = {});

/// A recipe that is already YAML (a run's resolved recipe, a weights file's metadata).
Recipe parse_recipe(const YAML::Node& node, const std::string& name);

/// Makes the recipe's network; the recipe's model options become the resolved ones. Weights are
/// drawn from a generator seeded with train.seed.
std::shared_ptr<CapsNet> build_model(Recipe& recipe, ModelContext context);

}  // namespace remcaps
