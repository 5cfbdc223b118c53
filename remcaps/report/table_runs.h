// The runs behind a table's numbers: how many, how long, on which machine, and how they differ from
// the paper's.
#pragma once

#include <string>
#include <vector>

#include "remcaps/report/paper_tables.h"
#include "remcaps/report/run_results.h"

namespace remcaps {

/// 6,804,384 -> "6.8M", 42,871 -> "43k".
std::string short_count(double value);

/// A heading, then one row for every experiment with the table's recipes.
std::vector<std::vector<std::string>> run_rows(const PaperTable& table, const RunResults& results,
                                               const std::string& plus_minus);

}  // namespace remcaps
