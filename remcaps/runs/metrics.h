// metrics.csv: one row per epoch, appended and flushed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace remcaps {

/// The results of an epoch. A value is empty if it was not measured in that epoch.
struct EpochRecord {
  int64_t epoch = 0;  ///< from 0
  int64_t step = 0;   ///< steps since the run began
  double lr = 0;
  double train_loss = 0, train_accuracy = 0;            ///< mean over the epoch's images
  double validation_loss = 0, validation_accuracy = 0;  ///< before this epoch's pruning
  std::optional<double> test_loss, test_accuracy;       ///< after pruning, as everything below
  double sparsity = 0;                                  ///< share of zeros, published definition
  int64_t parameters_nonzero = 0;
  std::optional<double> threshold;     ///< of this epoch's pruning
  std::optional<int64_t> evaluations;  ///< validation passes of its search
  /// Margin loss on the validation set before and after pruning.
  std::optional<double> loss_before_pruning, loss_after_pruning;
  std::optional<double> accuracy_quantized, entropy, keys;  ///< of the test set's parse trees
};

/// No column depends on time: two runs of one recipe and seed write equal files on a CPU.
class MetricsFile {
 public:
  /// Creates the file if it does not exist.
  explicit MetricsFile(std::filesystem::path path);

  void append(const EpochRecord& record);

  /// Keeps the first `rows` rows. A resumed run trains the epochs after its last checkpoint again.
  void cut(int64_t rows);

  static std::vector<std::string> columns();

 private:
  std::filesystem::path path_;
};

/// metrics.csv as {column: [number or null, ...]}. An empty object if there is no such file. Errors
/// name the damaged line.
nlohmann::json read_metrics(const std::filesystem::path& file);

/// The epochs of metrics.csv in which parse trees were measured.
struct TreeCurve {
  std::vector<double> epoch, sparsity, accuracy_quantized, entropy, keys;
};
/// From what read_metrics() gives, or from what to_json() gave. Error, which begins with `source`,
/// if columns are missing or not as long as the others.
TreeCurve tree_curve(const nlohmann::json& columns, const std::string& source);
nlohmann::json to_json(const TreeCurve& curve);

}  // namespace remcaps
