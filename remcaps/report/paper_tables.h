// The paper's tables: which run each cell comes from, and the number the paper prints there.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace remcaps {

enum class Metric {
  kAccuracy,           ///< percent, mean ± standard deviation over seeds
  kAccuracyQuantized,  ///< the same with quantized couplings
  kEntropy,            ///< bits, mean over seeds and classes ± standard deviation over classes
  kSparsity,           ///< percent, median over seeds
  kParameters,         ///< parameters left in the best seed
  kKeys,               ///< parse trees of one class, median over seeds
};

struct PaperNumber {
  double value = 0;
  std::optional<double> deviation;
};

struct PaperCell {
  std::string recipe;  ///< whose runs fill it: "mnist/dr-capsnet-rem"
  Metric metric = Metric::kAccuracy;
  std::string split = "test";  ///< or another the data set has: "familiar", "expanded-test"
  int64_t class_index = -1;    ///< kKeys only
  std::optional<PaperNumber> paper;
};

struct PaperRow {
  std::vector<std::string> labels;
  std::vector<std::optional<PaperCell>> cells;  ///< nothing where the paper has a dash
};

struct PaperTable {
  std::string name;   ///< "main"
  std::string paper;  ///< "Table 1"; empty for one that it draws as a figure or does not have
  std::string title;
  std::string note;                  ///< what a reader should know; may be empty
  std::vector<std::string> labels;   ///< headings of the rows' labels
  std::vector<std::string> columns;  ///< headings of the cells
  std::vector<PaperRow> rows;

  /// Recipes its cells come from, each once, in the table's order.
  std::vector<std::string> recipes() const;
};

/// In the paper's order, then what goes beyond it.
const std::vector<PaperTable>& paper_tables();

/// UsageError suggests the nearest name.
const PaperTable& paper_table(const std::string& name);

}  // namespace remcaps
