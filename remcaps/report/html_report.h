// `remcaps report`: the results of some runs as one HTML file that opens offline.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "remcaps/report/shown_runs.h"

namespace remcaps {

struct HtmlReportOptions : RunSelection {
  std::string title;      ///< empty: made from the networks and data sets
  int64_t samples = 500;  ///< images in the explorer
  /// Networks that would make the file larger are left out.
  size_t most_bytes = 20'000'000;
};

struct HtmlReportSummary {
  std::vector<std::string> runs;  ///< their labels in the report
  size_t bytes = 0;               ///< size of the file
};

/// Measures each run on its data set and writes the report atomically. Runs that are shown the same
/// images share them in the file, so that they can be compared image by image.
///
/// The networks are in the file, too, so that they answer for pictures that are dropped on it.
///
/// The file stays under 20 MB for any network: couplings that do not fit are left out, those to
/// other classes than the predicted one first, and so are networks (most_bytes).
HtmlReportSummary write_html_report(const HtmlReportOptions& options,
                                    const std::filesystem::path& file);

}  // namespace remcaps
