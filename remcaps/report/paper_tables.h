// The paper's tables: which runs fill each cell, and the number the paper prints there. They are
// data, paper_tables.yaml, which is part of the program.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
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

/// "accuracy_quantized" and so on.
const std::map<std::string, Metric>& metric_names();
std::string metric_name(Metric metric);

struct PaperNumber {
  double value = 0;
  std::optional<double> deviation;
};

struct PaperCell {
  std::string recipe;  ///< its runs fill the cell: "mnist/dr-capsnet-rem"
  Metric metric = Metric::kAccuracy;
  std::string split = "test";  ///< or another the data set has: "familiar", "expanded-test"
  int64_t class_index = -1;    ///< kKeys only
  std::optional<PaperNumber> paper;
};

struct PaperRow {
  std::vector<std::string> labels;
  std::vector<std::optional<PaperCell>> cells;  ///< nothing if the paper has a dash there
};

struct PaperTable {
  std::string name;   ///< "main"
  std::string paper;  ///< "Table 1"; empty if the paper has no such table
  std::string title;
  std::string note;                  ///< shown below the table; may be empty
  std::vector<std::string> labels;   ///< headings of the rows' labels
  std::vector<std::string> columns;  ///< headings of the cells
  std::vector<PaperRow> rows;

  /// The recipes of its cells, each once, in the table's order.
  std::vector<std::string> recipes() const;
};

/// In the paper's order, then tables of our own.
const std::vector<PaperTable>& paper_tables();

/// The tables of a YAML text. Error for unknown keys, for text in place of numbers, and for rows
/// that do not fit their columns; the message begins with `source`.
std::vector<PaperTable> read_paper_tables(const std::string& yaml, const std::string& source);

/// paper_tables.yaml.
std::string_view paper_tables_text();

/// UsageError suggests the nearest name.
const PaperTable& paper_table(const std::string& name);

}  // namespace remcaps
