// A recipe: everything that determines what a training run computes. Read from and written to YAML.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "remcaps/base/config.h"
#include "remcaps/data/dataset.h"
#include "remcaps/models/model.h"
#include "remcaps/parse_tree/quantizer.h"

namespace remcaps {

struct MarginOptions;

/// The recipe's `loss` section.
struct LossOptions {
  std::string kind = "margin";  ///< "margin" or, for the network resnet18, "cross-entropy"
  double m_plus = 0.9, m_minus = 0.1, lambda = 0.5;  ///< margin loss (paper eq. 1)
  double reconstruction = 0.0005;  ///< weight of the summed squared error, if there is a decoder
  int64_t switch_epoch = -1;       ///< first epoch that uses the `switched_` values; -1: never
  double switched_m_plus = 0.95, switched_m_minus = 0.05, switched_lambda = 0.8;

  /// The margins of an epoch.
  MarginOptions margin(int64_t epoch) const;
};

/// The recipe's `train` section.
struct TrainOptions {
  int64_t batch = 128;
  double lr = 0.001, lr_decay = 0.99, min_lr = 0;  ///< lr of epoch e: max(min_lr, lr * lr_decay^e)
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;   ///< Adam
  int64_t epochs = 0;                              ///< 0: no limit
  double minutes = 0;                              ///< of training time; 0: no limit
  /// Stop when validation accuracy reaches this, and evaluate the network of that moment (affNIST's
  /// under-trained networks); 0: never.
  double stop_accuracy = 0;
  int64_t patience = 200;  ///< stop this many epochs after the best validation loss; 0: never
  int64_t seed = 42;
  /// A run folder or weights file. The network starts with its tensors of the same names.
  std::string start_from;
  /// The recipe whose run of the same seed `reproduce` trains first and gives as start_from.
  std::string start_recipe;
  /// Patterns of layers or parameters that are not trained ("class", "conv*").
  std::vector<std::string> freeze;
  /// After an epoch, `last` and `state` are saved if it is a new best; otherwise after
  /// checkpoint_epochs epochs, but not within checkpoint_seconds of the last save.
  int64_t checkpoint_epochs = 1;
  double checkpoint_seconds = 10;
  int64_t checkpoint_steps = 0;    ///< save state also after so many steps of an epoch; 0: do not
  double checkpoint_minutes = 10;  ///< and after so many minutes within an epoch; 0: do not

  double lr_at(int64_t epoch) const;
};

/// The recipe's `quantize` section: how couplings are quantized when parse trees are measured.
struct QuantizeOptions {
  std::vector<int64_t> levels = {11};  ///< K per routing layer, or one for all; 0: do not quantize
  std::string form = "uniform";        ///< "uniform" or "bins", see Quantizer

  /// One quantizer per routing layer. Error if the numbers of levels and layers do not match.
  std::vector<std::optional<Quantizer>> quantizers(size_t routing_layers) const;
};

/// The recipe's `metrics` section.
struct MetricsOptions {
  /// Measure test accuracy and parse trees after so many epochs; 0: never.
  int64_t every = 10;
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
  YAML::Node pruning;  ///< the `pruning` section, checked and resolved; see pruning_section()
  QuantizeOptions quantize;
  MetricsOptions metrics;
  std::string kernels = "fused";      ///< "fused" or "reference"
  bool deterministic = false;         ///< only deterministic algorithms on a GPU
  std::string precision = "float32";  ///< "float32", "tf32" or "bf16"
  bool cuda_graph = true;             ///< replay a recorded step on a GPU, if possible

  KernelPath kernel_path() const {
    return kernels == "fused" ? KernelPath::kFused : KernelPath::kReference;
  }
  /// Whether the run prunes weights.
  bool prunes() const;
  /// Whether the result of a run is its last checkpoint and not the best: if the run prunes, or
  /// stops at an accuracy.
  bool counts_last() const { return prunes() || train.stop_accuracy > 0; }

  /// All keys with their values. parse_recipe() reads the result.
  YAML::Node to_yaml() const;
  std::string to_text() const;
};

/// The file of a recipe: the path of a file, or a name such as "fashion-mnist/eff-capsnet" that is
/// looked up in resource_folders("recipes"). UsageError suggests the nearest name.
std::filesystem::path find_recipe(const std::string& name_or_path);

/// All names that find_recipe() finds.
std::vector<std::string> recipe_names();

/// Reads a recipe with its includes, then applies "key=value" overrides. UsageError for unknown
/// keys (with the nearest known one) and for values out of range.
Recipe load_recipe(const std::string& name_or_path, const std::vector<std::string>& overrides = {});

/// A recipe that is already YAML (a run's resolved recipe, a weights file's metadata).
Recipe parse_recipe(const YAML::Node& node, const std::string& name);

/// A recipe that a run folder or weights file holds. Keys that were not there when an older version
/// wrote it get the values of that version.
Recipe parse_stored_recipe(const YAML::Node& node, const std::string& name);

/// The present name of a key of an older recipe: "pruning.tolerance" for "pruning.twt".
std::string current_key(const std::string& path);

/// Makes the recipe's network, with weights from a generator seeded with train.seed. Writes the
/// resolved model options back to the recipe.
std::shared_ptr<CapsNet> build_model(Recipe& recipe, ModelContext context);

}  // namespace remcaps
