// Copies of run summaries that are kept with the sources: the published numbers come from them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/report/run_results.h"

namespace remcaps {

struct CollectOptions {
  std::filesystem::path out = "results";
  std::string machine, commit;  ///< replace what the summaries say, if not empty
  std::string data_note;        ///< how the data differ from the official ones
};

/// Copies each run's summary to OUT/<recipe>/seed-<n>.json (seed-<n>-2.json for another experiment
/// with that recipe and seed), without the folder it was trained in. Returns the files.
std::vector<std::filesystem::path> collect_results(const RunResults& results,
                                                   const CollectOptions& options);

}  // namespace remcaps
