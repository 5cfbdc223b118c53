// A page in which one draws: one HTML file with exported networks and the runtime as WebAssembly.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps {

struct DrawPageOptions {
  /// One or two networks of one data set: run folders, weights files or zoo:NAME, as for a report.
  std::vector<std::string> runs;
  std::string data;  ///< folder of the data sets; empty: where each run found its own
};

struct DrawPageSummary {
  size_t bytes = 0;
  std::vector<std::string> networks;  ///< their labels
  std::string note;                   ///< why the page has no dictionaries; empty if it has them
};

/// Writes the page. The dictionaries are those of the test split. If the data set cannot be read,
/// the page has neither dictionaries nor test images.
DrawPageSummary write_draw_page(const DrawPageOptions& options, const std::filesystem::path& file);

}  // namespace remcaps
