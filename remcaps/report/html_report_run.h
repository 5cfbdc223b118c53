// One run of a report: its numbers over a whole split, and its explorer data image by image.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "remcaps/report/html_report_images.h"
#include "remcaps/report/html_report_page.h"
#include "remcaps/report/shown_runs.h"

namespace remcaps {

/// How much of the file one run may use.
struct RunShare {
  size_t explorer_bytes = 0;   ///< its explorer data, encoded
  int64_t gallery_images = 0;  ///< pictures of the trees of all its classes
};

/// The schema's Run, without its name and data set. Adds the images its dictionaries show to
/// `images` and its couplings to `blobs`.
nlohmann::json measure_run(const ShownRun& shown, ReportImages& images, const RunShare& share,
                           PageBlobs& blobs);

/// The schema's Layers, without their entropies; `forward` has traces.
nlohmann::json layers_of(const Forward& forward, const QuantizeOptions& quantize,
                         const Quantizers& quantizers);

}  // namespace remcaps
