// The paper's tables with our numbers beside the paper's.
#pragma once

#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"
#include "remcaps/report/run_results.h"

namespace remcaps {

/// "text", "markdown", "latex", "csv" or "json".
std::vector<std::string> table_formats();

/// Each row twice, ours and the paper's; below it, what the rows cannot say: seeds, epochs, the
/// best seed with its parameters left, both deviations of the entropy, accuracy without
/// quantization, recipes that have no run yet. CSV has one line per cell, JSON everything.
std::string render_table(const PaperTable& table, const RunResults& results,
                         const std::string& format);

}  // namespace remcaps
