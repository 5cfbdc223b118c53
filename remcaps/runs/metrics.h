// metrics.csv: one row per epoch, appended and flushed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace remcaps {

/// What an epoch ended with. Empty where it was not measured in that epoch.
struct EpochRecord {
  int64_t epoch = 0;  ///< from 0
  int64_t step = 0;   ///< steps since the run began
  double lr = 0;
  double train_loss = 0, train_accuracy = 0;            ///< mean over the epoch's images
  double validation_loss = 0, validation_accuracy = 0;  ///< before this epoch's pruning
  std::optional<double> test_loss, test_accuracy;       ///< after it, as all that follows
  double sparsity = 0;                                  ///< share of zeros, published definition
  int64_t parameters_nonzero = 0;
  std::optional<double> threshold;     ///< of this epoch's pruning
  std::optional<int64_t> evaluations;  ///< validation passes its search took
  /// Margin loss on the validation set before and after it: the bound every search keeps.
  std::optional<double> loss_before_pruning, loss_after_pruning;
  std::optional<double> accuracy_quantized, entropy, keys;  ///< of the test set's parse trees
};

/// No column depends on the clock: two runs of one recipe and seed give equal files on a CPU.
class MetricsFile {
 public:
  /// Starts the file where it does not exist yet.
  explicit MetricsFile(std::filesystem::path path);

  void append(const EpochRecord& record);

  /// Keeps the first `rows` rows: what a killed run wrote after its last checkpoint is trained
  /// again.
  void cut(int64_t rows);

  static std::vector<std::string> columns();

 private:
  std::filesystem::path path_;
};

/// metrics.csv as {column: [number or null, ...]}; an empty object where there is no such file.
/// Error names the line of one that is damaged.
nlohmann::json read_metrics(const std::filesystem::path& file);

}  // namespace remcaps
