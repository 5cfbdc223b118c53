// The state of many runs as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "remcaps/runs/status.h"

namespace remcaps::cli {

/// How many runs are in which state, then a row for each run, or only for those that a worker has
/// begun and not ended. A terminal of so many columns gets fewer columns of the table, if need be.
std::string status_text(const std::vector<RunStatus>& runs, std::optional<size_t> columns,
                        bool only_begun = false);

}  // namespace remcaps::cli
