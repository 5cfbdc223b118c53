// The paper's tables with our numbers beside the paper's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"
#include "remcaps/report/run_results.h"

namespace remcaps {

/// "text", "markdown", "latex", "csv" or "json".
std::vector<std::string> table_formats();

/// The table without the rows that have not been run.
PaperTable rows_with_runs(PaperTable table, const RunResults& results);

/// A line for each experiment with the recipes of a row, then the paper's; below the table, the
/// runs behind it (table_runs.h) and the recipes without a run. A row that has not been run has the
/// paper's line only. CSV has one line per number, JSON everything. A text is made for a terminal of
/// so many columns, if given.
std::string render_table(const PaperTable& table, const RunResults& results,
                         const std::string& format, std::optional<size_t> columns = std::nullopt);

}  // namespace remcaps
