// A trained network as an ONNX file.
#pragma once

#include <filesystem>

#include "remcaps/runs/load.h"

namespace remcaps {

/// Writes the network with the weights that `export_model` would write, that is in half precision.
/// `levels` is as in write_onnx(). The run has the compressed weights afterwards. Error if the
/// network cannot be described as a graph.
void export_onnx(LoadedRun& run, const std::filesystem::path& out,
                 const std::vector<int64_t>& levels);

}  // namespace remcaps
