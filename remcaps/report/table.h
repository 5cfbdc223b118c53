// The paper's tables with our numbers beside the paper's.
#pragma once

#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"
#include "remcaps/report/run_results.h"

namespace remcaps {

/// "text", "markdown", "latex", "csv" or "json".
std::vector<std::string> table_formats();

/// The table without the rows no run has a number for.
PaperTable rows_with_runs(PaperTable table, const RunResults& results);

/// Each row twice, ours and the paper's; below it, what the rows cannot say: the runs behind them
/// (table_runs.h) and the recipes that have none yet. CSV has one line per cell, JSON everything.
std::string render_table(const PaperTable& table, const RunResults& results,
                         const std::string& format);

}  // namespace remcaps
