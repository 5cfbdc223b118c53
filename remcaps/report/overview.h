// All results in one table: what we got, what the paper has, and whether the runs converged.
#pragma once

#include <optional>
#include <string>

#include "remcaps/report/run_results.h"

namespace remcaps {

/// One line per experiment with a recipe of the paper's tables. Accuracies and entropies are those
/// with quantized couplings on the test set. `format` is text, markdown or csv; UsageError
/// otherwise. A text is made for a terminal of so many columns, if given.
std::string render_overview(const RunResults& results, const std::string& format,
                            std::optional<size_t> columns = std::nullopt);

}  // namespace remcaps
