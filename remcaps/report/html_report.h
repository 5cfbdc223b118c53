// `remcaps report`: what became of some runs, as one HTML file that opens offline.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace remcaps {

struct HtmlReportOptions {
  std::string title;           ///< empty: made from the networks and data sets
  std::string split = "test";  ///< the images that are measured
  int64_t samples = 500;       ///< of them the explorer shows this many
  std::string data;            ///< folder of the data sets; empty: where each run found its own
};

struct HtmlReportSummary {
  std::vector<std::string> runs;  ///< the names they have in the report
  size_t bytes = 0;               ///< of the file
};

/// Measures each run (a run folder or a weights file) on its data set and writes the report
/// atomically. Runs of one data set share its images, so that they can be compared one by one.
///
/// The file stays under 20 MB whatever the networks: couplings that do not fit are left out, those
/// to other classes than the predicted one first.
HtmlReportSummary write_html_report(const std::vector<std::filesystem::path>& runs,
                                    const HtmlReportOptions& options, torch::Device device,
                                    const std::filesystem::path& file);

}  // namespace remcaps
