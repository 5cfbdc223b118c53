// Run summaries small enough to be kept with the sources: what the published numbers come from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/report/run_results.h"

namespace remcaps {

struct CollectOptions {
  std::filesystem::path out = "results";
  std::string machine, commit;  ///< override what the summaries say, where not empty
  std::string data_note;        ///< how the data differ from the official ones
};

/// Copies each run's summary to OUT/<recipe>/seed-<n>.json, one line a key, without the folder it
/// was trained in. Returns the files.
std::vector<std::filesystem::path> collect_results(const RunResults& results,
                                                   const CollectOptions& options);

}  // namespace remcaps
