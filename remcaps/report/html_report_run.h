// One run of a report: measured over a whole split, and image by image for the explorer.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "remcaps/report/html_report_images.h"
#include "remcaps/report/html_report_page.h"
#include "remcaps/runs/load.h"

namespace remcaps {

/// What one run may take of the file.
struct RunShare {
  size_t explorer_bytes = 0;   ///< couplings and all, packed
  int64_t gallery_images = 0;  ///< for the trees of all its classes
};

/// The schema's Run, without its name and data set. Adds the images its dictionaries show to
/// `images` and its couplings to `blobs`.
nlohmann::json measure_run(const LoadedRun& run, const BatchSource& source, ReportImages& images,
                           const RunShare& share, PageBlobs& blobs);

}  // namespace remcaps
