// The state of many runs as text.
#pragma once

#include <string>
#include <vector>

#include "remcaps/runs/status.h"

namespace remcaps::cli {

/// How many runs are in which state, then a row for each run, or only for those that a worker has
/// begun and not ended.
std::string status_text(const std::vector<RunStatus>& runs, bool only_begun = false);

}  // namespace remcaps::cli
